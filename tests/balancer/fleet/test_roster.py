"""Who is here, and whose time has come."""

import pytest

from arriero.balancer.fleet.decisions import LinkId, Send
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.roster import BUSY_PAUSE, Roster
from arriero.balancer.fleet.view import AgentView, SlotsView
from arriero.shared.inference import AgentId
from arriero.shared.messages import Heartbeat, Statistics
from tests.balancer.fleet.builders import hello, model_info, status

LIMITS = Limits(heartbeat_interval=1.0, heartbeat_timeout=5.0)
LINK = LinkId(1)


def roster_with(link: LinkId = LINK, now: float = 0.0) -> Roster:
    roster = Roster(LIMITS)
    roster.joined(link, hello("a1"), now)
    return roster


def test_an_agent_is_found_by_link_and_by_id_until_it_leaves() -> None:
    roster = roster_with()
    agent = roster[LINK]
    assert roster.get(LINK) is agent
    assert roster.link_of(AgentId("a1")) == LINK
    assert list(roster) == [agent]
    assert roster.left(LINK) is agent
    assert roster.get(LINK) is None
    assert roster.link_of(AgentId("a1")) is None
    assert roster.next_deadline() is None
    roster.check_integrity()


def test_one_agent_has_one_link() -> None:
    roster = roster_with()
    with pytest.raises(ValueError, match="already"):
        roster.joined(LinkId(2), hello("a1"), 1.0)
    with pytest.raises(ValueError, match="already"):
        roster.joined(LINK, hello("a2"), 1.0)


def test_speaking_spares_the_next_heartbeat() -> None:
    roster = roster_with()
    agent = roster[LINK]
    assert roster.next_deadline() == 1.0
    assert roster.send(LINK, Heartbeat(), 0.5) == Send(LINK, Heartbeat())
    assert roster.due(1.0) == [], "it was spoken to meanwhile"
    assert roster.next_deadline() == 1.5
    assert roster.due(1.5) == [agent]
    assert agent.pulse.is_due(1.5)
    roster.send(LINK, Heartbeat(), 1.5)
    roster.seen_to(agent)
    assert roster.next_deadline() == 2.5
    roster.check_integrity()


def test_a_rest_is_a_deadline_of_its_own() -> None:
    roster = roster_with()
    agent = roster[LINK]
    roster.rests(agent, 0.25)
    assert roster.next_deadline() == 0.25 + BUSY_PAUSE
    assert roster.due(0.25 + BUSY_PAUSE) == [agent]


def test_an_agent_that_is_due_may_leave() -> None:
    roster = roster_with()
    assert roster.due(5.0) == [roster[LINK]]
    roster.left(LINK)
    assert roster.due(9.0) == []
    roster.check_integrity()


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (status(accepting=True), "ready"),
        (status(accepting=False), "draining"),
        (status(model=None), "no_model"),
        (status(model=None, accepting=False), "draining"),
    ],
)
def test_its_state_is_what_it_says(said: object, state: str) -> None:
    roster = roster_with()
    roster[LINK].changed(said)  # type: ignore[arg-type]
    assert roster[LINK].state == state


def test_its_view_joins_its_words_with_our_count() -> None:
    roster = roster_with(now=10.0)
    roster[LINK].num_tokens = 7
    roster[LINK].statistics = Statistics(num_running=1)
    assert roster[LINK].view(num_busy=1, now=12.5) == AgentView(
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
    )
