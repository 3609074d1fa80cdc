"""Who is here, and whose time has come."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.change_log import ChangeLog
from arriero.balancer.fleet.decisions import LinkId, Send
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.registry import BUSY_PAUSE, Registry
from arriero.balancer.fleet.view import AgentView, ServedView, SlotsView
from arriero.shared.inference import AgentId
from arriero.shared.messages import Heartbeat, Hello
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import forwarding, hello, model_info, status, work

LIMITS = Limits(heartbeat_interval=1.0, heartbeat_timeout=5.0)
LINK = LinkId(1)


def registry_with(link: LinkId = LINK, now: float = 0.0) -> Registry:
    registry = Registry(LIMITS, ChangeLog())
    registry.joined(link, hello("a1"), now)
    return registry


def test_an_agent_is_found_by_link_and_by_id_until_it_leaves() -> None:
    registry = registry_with()
    agent = registry[LINK]
    assert registry.get(LINK) is agent
    assert registry.link_of(AgentId("a1")) == LINK
    assert list(registry) == [agent]
    assert registry.left(LINK) is agent
    assert registry.get(LINK) is None
    assert registry.link_of(AgentId("a1")) is None
    assert registry.next_deadline() is None
    registry.check_integrity()


def test_one_agent_has_one_link() -> None:
    registry = registry_with()
    with pytest.raises(ValueError, match="already"):
        registry.joined(LinkId(2), hello("a1"), 1.0)
    with pytest.raises(ValueError, match="already"):
        registry.joined(LINK, hello("a2"), 1.0)


def test_speaking_spares_the_next_heartbeat() -> None:
    registry = registry_with()
    agent = registry[LINK]
    assert registry.next_deadline() == 1.0
    assert registry.message_to(LINK, Heartbeat(), 0.5) == Send(LINK, Heartbeat())
    assert registry.due(1.0) == [], "it was spoken to meanwhile"
    assert registry.next_deadline() == 1.5
    assert registry.due(1.5) == [agent]
    assert agent.heartbeat.is_due(1.5)
    registry.message_to(LINK, Heartbeat(), 1.5)
    registry.arm(agent)
    assert registry.next_deadline() == 2.5
    registry.check_integrity()


def test_a_rest_is_a_deadline_of_its_own() -> None:
    registry = registry_with()
    agent = registry[LINK]
    registry.rests(agent, 0.25)
    assert registry.next_deadline() == 0.25 + BUSY_PAUSE
    assert registry.due(0.25 + BUSY_PAUSE) == [agent]


def test_an_agent_that_is_due_may_leave() -> None:
    registry = registry_with()
    assert registry.due(5.0) == [registry[LINK]]
    registry.left(LINK)
    assert registry.due(9.0) == []
    registry.check_integrity()


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (status(accepting=True), "ready"),
        (status(accepting=False), "draining"),
        (status(model=None), "idle"),
        (status(model=None, work=work("waiting", None)), "idle"),
        (status(model=None, work=work("fetching")), "loading"),
        (status(model=None, work=work("failed")), "failed"),
        (status(work=work("failed")), "ready"),
        (status(model=None, accepting=False), "draining"),
    ],
)
def test_its_state_is_what_it_says(said: object, state: str) -> None:
    registry = registry_with()
    registry[LINK].changed(said)  # type: ignore[arg-type]
    assert registry[LINK].state(0) == state


def test_a_cordoned_agent_is_draining_until_it_has_no_requests() -> None:
    registry = registry_with()
    registry[LINK].is_cordoned = True
    assert (registry[LINK].state(1), registry[LINK].state(0)) == ("draining", "drained")
    assert not registry[LINK].takes_work


def test_a_retired_link_has_no_id_and_keeps_its_heartbeat() -> None:
    registry = registry_with()
    registry.retire(registry[LINK])
    assert registry.link_of(AgentId("a1")) is None
    assert (len(registry), registry.num_agents, list(registry.current())) == (1, 0, [])
    registry[LINK].changed(status(slots=4))  # type: ignore[arg-type]
    assert registry[LINK].slots == 0
    registry.check_integrity()
    new = LinkId(LINK + 1)
    registry.joined(new, hello("a1"), 1.0)
    registry.left(LINK)
    assert registry.of(AgentId("a1")).link == new
    registry.check_integrity()


def test_its_view_joins_its_words_with_our_count() -> None:
    registry = registry_with(now=10.0)
    registry[LINK].num_tokens = 7
    registry[LINK].statistics = Statistics(num_running=1)
    assert registry[LINK].view(num_busy=1, now=12.5) == AgentView(
        id=AgentId("a1"),
        name="host-a1",
        labels={},
        version="1.0",
        state="ready",
        slots=SlotsView(total=2, busy=1),
        model=model_info("llama"),
        issues=(),
        statistics=Statistics(num_running=1),
        num_tokens=7,
        connected_seconds=2.5,
        models=(
            ServedView(
                name="llama",
                state="ready",
                slots=SlotsView(total=2, busy=1),
                info=model_info("llama"),
            ),
        ),
    )


def test_agents_of_one_host_are_one_for_operators() -> None:
    changes = ChangeLog()
    registry = Registry(LIMITS, changes)
    for number, name in enumerate(("h", "p2", "p3")):
        registry.joined(LinkId(number), replace(hello(name), host=AgentId("h")), 0.0)
    host = AgentId("h")
    assert (registry.num_agents, list(registry.hosts())) == (1, [host])
    assert [str(each.hello.agent_id) for each in registry.on_host(host)] == ["h", "p2", "p3"]
    before = changes.revision
    registry.left(LinkId(0), "stopped", 1.0)
    found = changes.since(before)
    assert found is not None and (found.changed, found.gone) == ((host,), ())
    first = registry.find(host)
    assert first is not None and first.hello.agent_id == "p2", "the host goes on without its first"
    registry.check_integrity()
    registry.left(LinkId(1), "lost", 1.0)
    registry.left(LinkId(2), "lost", 1.0)
    found = changes.since(before)
    assert found is not None and (found.changed, found.gone) == ((), (host,))
    assert (registry.departure_of(host), registry.find(host)) == ("lost", None)
    registry.check_integrity()


@pytest.mark.parametrize(
    ("said", "origins"),
    [
        (forwarding("a"), {None, "f", "g"}),
        (hello("a", fingerprint="f"), {None, "f"}),
        (hello("a", model=None), {None}),
    ],
)
def test_with_whose_answers_an_agent_goes_on_by_text(said: Hello, origins: set[str | None]) -> None:
    registry = Registry(LIMITS, ChangeLog())
    agent = registry.joined(LINK, said, 0.0)
    assert {each for each in (None, "f", "g") if agent.goes_on_from(each)} == origins
