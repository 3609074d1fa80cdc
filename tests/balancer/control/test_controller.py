from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.control.controller import (
    MOST_BELIEVED,
    SETTLE,
    VERSIONS,
    Controller,
    OrderNumbers,
    epoch_of,
)
from arriero.balancer.control.demand import Demand
from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.placement import HOLD, REDIAL
from arriero.shared.inference import AgentId
from arriero.shared.messages import PROTOCOL_VERSION, Issue
from arriero.shared.models.assignments import HostFacts, Work
from arriero.shared.models.engine_options import EngineOptions
from arriero.shared.since import Since
from tests.balancer.control.builders import GIB, SimulatedAgent, report, state, wished


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterOptions(EngineOptions):
    """With a field that agents of the version before do not know."""

    mood: Annotated[str | None, Since(PROTOCOL_VERSION)] = None


class Fleet:
    """Simulated agents under one controller."""

    def __init__(self, *names: str, has_room: bool = True) -> None:
        self.controller = Controller(drain_timeout=30.0)
        self.agents = {name: SimulatedAgent(name, has_room=has_room) for name in names}
        self.bad: set[str] = set()
        self.now = 100.0

    def wish(self, *models: DesiredModel) -> None:
        self.controller.desire(state(*models))

    def look(self, **demands: float) -> dict[str, str | None]:
        """What the agents are told: a source, or nothing."""
        waiting: Mapping[str, Demand] = {name: Demand(1, at) for name, at in demands.items()}
        reports = [agent.report() for agent in self.agents.values()]
        told = self.controller.reconcile(reports, waiting, self.now)
        self.controller.check_integrity()
        for each in told:
            self.agents[each.agent].inbox.append(each.order)
        return {
            str(each.agent): each.order.assignment.source if each.order.assignment else None
            for each in told
        }

    def act(self) -> None:
        for agent in self.agents.values():
            agent.hear()
            agent.finish(self.bad)

    def rest(self, **demands: float) -> list[dict[str, str | None]]:
        """Looks and acts until nothing is told; what was told, look by look."""
        history = []
        while told := self.look(**demands):
            history.append(told)
            self.act()
        return history


M1, M2, N1 = "file:///m-1.gguf", "file:///m-2.gguf", "file:///n-1.gguf"


def test_without_a_wish_nobody_is_told_anything() -> None:
    fleet = Fleet("a")
    fleet.agents["a"].revision, fleet.agents["a"].told = 7, wished("m").assignment
    assert fleet.look() == {}
    assert fleet.controller.reconcile_at is None


def test_the_same_wish_again_changes_nothing() -> None:
    fleet = Fleet("a", "b")
    fleet.wish(wished("m"))
    assert fleet.rest() == [{"a": M1, "b": M1}]
    fleet.wish(wished("m"))
    assert fleet.look() == {}


def test_a_change_rolls() -> None:
    fleet = Fleet("a", "b", "c", has_room=False)
    fleet.wish(wished("m"))
    fleet.rest()
    fleet.wish(wished("m", 2))
    assert [len(told) for told in fleet.rest()] == [1, 1, 1]
    assert {agent.runs.source for agent in fleet.agents.values() if agent.runs} == {M2}


def test_a_load_that_fails_stops_the_roll_and_says_why() -> None:
    fleet = Fleet("a", "b")
    fleet.wish(wished("m"))
    fleet.rest()
    fleet.bad.add(M2)
    fleet.wish(wished("m", 2))
    assert len(fleet.rest()) == 1
    assert all(agent.is_serving for agent in fleet.agents.values())
    status = fleet.controller.statuses["m"]
    assert [issue.code for issue in status.issues] == ["load_failed", "roll_stopped"]
    fleet.now += 3600
    assert fleet.look() == {}, "no agent that serves is troubled again"
    fleet.wish(wished("m", 1))
    assert list(fleet.look().values()) == [M1]


def test_an_operator_may_have_it_tried_again() -> None:
    fleet = Fleet("a")
    fleet.bad.add(M1)
    fleet.wish(wished("m"))
    fleet.rest()
    assert fleet.controller.statuses["m"].status == "failed"
    assert fleet.look() == {}
    fleet.controller.retry(fleet.agents["a"].report().id, fleet.now)
    fleet.bad.clear()
    assert fleet.rest() == [{"a": M1}]
    assert fleet.controller.statuses["m"].status == "loaded"
    assert fleet.controller.statuses["m"].issues == ()


def test_a_source_with_a_typo_costs_no_agent_anything() -> None:
    fleet = Fleet("a", "b")
    fleet.bad.add(N1)
    fleet.wish(wished("n", replicas=1), wished("m", replicas=1))
    assert fleet.look() == {"a": N1, "b": M1}
    fleet.agents["a"].hear()
    fleet.agents["a"].finish(fleet.bad)
    fleet.agents["b"].hear()
    assert fleet.look() == {}, "b goes on loading"
    fleet.act()
    fleet.now += 3600
    assert fleet.look() == {"a": N1}, "only who has nothing to lose tries again"
    fleet.agents.pop("b")
    fleet.act()
    assert fleet.look(m=fleet.now) == {"a": M1}
    fleet.now += 3600
    assert fleet.look() == {}, "a goes on loading"


def test_a_load_is_interrupted_only_for_files_that_were_found() -> None:
    fleet = Fleet("a", "b")
    fleet.wish(wished("m"))
    fleet.look()
    for agent in fleet.agents.values():
        agent.hear()
    both = wished("m"), wished("n", replicas=1)
    fleet.wish(*both)
    assert fleet.look() == {}
    needed = Work(revision=1, assignment=both[1].assignment, needed=GIB)
    found = report("c", facts=HostFacts(is_pinned=True), work=needed)
    fleet.controller.reconcile([*(a.report() for a in fleet.agents.values()), found], {}, fleet.now)
    assert len(fleet.controller.statuses["n"].agents) == 1


def test_a_load_that_is_desired_no_more_is_interrupted() -> None:
    fleet = Fleet("a")
    fleet.wish(wished("m"))
    fleet.look()
    fleet.agents["a"].hear()
    fleet.wish(wished("n"))
    assert fleet.look() == {"a": N1}


def test_after_a_restart_of_the_balancer_nothing_is_told_that_need_not_be() -> None:
    fleet = Fleet("a", "b", has_room=False)
    fleet.wish(wished("m"))
    fleet.rest()
    fleet.wish(wished("m", 2))
    [first] = fleet.look()
    fleet.act()
    fleet.controller = Controller(drain_timeout=30.0)
    fleet.controller.restored(state(wished("m", 2)), fleet.now)
    assert fleet.look() == {}, "agents dial again first"
    assert fleet.controller.reconcile_at == fleet.now + SETTLE
    fleet.now += SETTLE
    second = fleet.look()
    assert list(second.values()) == [M2]
    assert list(second) != [first]
    revisions = [order.revision for agent in fleet.agents.values() for order in agent.inbox]
    assert revisions == [4], "above all that agents have heard of"


def places(fleet: Fleet, *names: str) -> None:
    """These agents are one host, and each knows of all of them."""
    for name in names:
        agent = fleet.agents[name]
        agent.host, agent.num_places = AgentId("h"), len(names)


def test_a_host_whose_other_agents_have_not_dialled_yet_is_waited_for() -> None:
    fleet = Fleet("loading", "spare")
    places(fleet, "spare", "loading")
    fleet.wish(wished("m", replicas=1))
    told = fleet.look()
    assert len(told) == 1
    fleet.act()
    [name] = told
    loads = fleet.agents.pop(name)
    [spare] = fleet.agents
    fleet.controller = Controller(drain_timeout=30.0)
    fleet.controller.restored(state(wished("m", replicas=1)), fleet.now)
    fleet.now += SETTLE
    assert fleet.look() == {}, "the host may load it already"
    assert fleet.controller.reconcile_at == fleet.now + SETTLE
    fleet.agents[name] = loads
    assert fleet.look() == {}, "it does"
    del fleet.agents[name]
    fleet.now += 1
    assert fleet.look() == {}
    fleet.now += HOLD
    assert fleet.look() == {spare: M1}, "it stays away"


def test_a_host_whose_other_agents_never_dial_is_not_waited_for_for_ever() -> None:
    fleet = Fleet("a", "b")
    places(fleet, "a", "b")
    del fleet.agents["b"]
    fleet.controller.restored(state(wished("m")), fleet.now)
    fleet.now += 2 * SETTLE - 0.1
    assert fleet.look() == {}
    fleet.now += 0.1
    assert fleet.look() == {"a": M1}


def test_a_host_that_has_room_is_preferred_to_one_that_said_it_has_not() -> None:
    for code in ("too_large", "does_not_fit"):
        fleet = Fleet("a", "b")
        fleet.wish(wished("m", replicas=1), wished("n", preload=False))
        [first] = fleet.look()
        agent = fleet.agents[first]
        agent.hear()
        agent.phase, agent.issues = "failed", (Issue(code=code, message="no"),)
        [other] = fleet.agents.keys() - {first}
        assert fleet.look() == {other: M1}
        fleet.act()
        words = fleet.controller.placement_of(wished("m", replicas=1))
        assert words == f"on {other}; not on {first}, where it failed ({code})"
        assert fleet.controller.placement_of(wished("n", preload=False)) is None


def test_what_does_not_fit_on_one_host_may_take_the_place_of_a_model_on_another() -> None:
    """It says nothing of the others."""
    fleet = Fleet("a", "b")
    fleet.wish(wished("m"))
    fleet.rest()
    fleet.wish(wished("m", 2))
    [first] = fleet.look()
    agent = fleet.agents[first]
    agent.hear()
    agent.phase, agent.issues = "failed", (Issue(code="does_not_fit", message="no"),)
    agent.runs = None
    agent.is_serving = False
    [other] = fleet.agents.keys() - {first}
    assert fleet.look() == {other: M2}


def test_an_order_that_was_lost_with_its_connection_is_given_again() -> None:
    fleet = Fleet("a")
    fleet.wish(wished("m"))
    assert fleet.look() == {"a": M1}
    assert fleet.look() == {}
    fleet.agents["a"].inbox.clear()
    fleet.agents["a"].link += 1
    assert fleet.look() == {"a": M1}


def test_an_agent_that_dials_again_has_its_place() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.wish(wished("m", replicas=2))
    [both] = fleet.rest()
    told = min(both)
    gone = fleet.agents.pop(told)
    assert fleet.look() == {}
    gone.link += 1
    fleet.agents[told] = gone
    assert fleet.look() == {}


def test_an_agent_that_stays_away_is_replaced() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.wish(wished("m", replicas=2))
    [both] = fleet.rest()
    del fleet.agents[min(both)]
    assert fleet.look() == {}
    assert fleet.controller.reconcile_at == fleet.now + REDIAL
    fleet.now += REDIAL
    assert fleet.look() == {}
    assert fleet.controller.reconcile_at == fleet.now + HOLD - REDIAL
    fleet.now += HOLD - REDIAL
    assert list(fleet.look().values()) == [M1]


def test_where_nobody_else_has_the_model_a_spare_agent_takes_it_soon() -> None:
    fleet = Fleet("a", "b")
    fleet.wish(wished("m", replicas=1))
    [[told]] = fleet.rest()
    gone = fleet.agents.pop(told)
    [spare] = fleet.agents
    assert fleet.look() == {}, "it may only dial again"
    fleet.now += REDIAL
    assert fleet.look() == {spare: M1}
    gone.link += 1
    fleet.agents[told] = gone
    assert fleet.rest() == [{spare: None}], "who is back serves it already"


def test_of_a_model_that_lost_all_agents_one_place_is_filled_and_the_others_are_kept() -> None:
    fleet = Fleet("a", "b", "c", "d")
    fleet.wish(wished("m", replicas=2))
    [both] = fleet.rest()
    for told in both:
        del fleet.agents[told]
    assert fleet.look() == {}
    fleet.now += REDIAL
    assert list(fleet.look().values()) == [M1]
    assert fleet.look() == {}
    fleet.now += HOLD - REDIAL
    assert list(fleet.look().values()) == [M1]


def test_an_agent_that_is_pinned_to_the_model_has_it_too() -> None:
    controller = Controller(drain_timeout=30.0)
    model = wished("m", replicas=1)
    controller.desire(state(model))
    pinned = report("p", serves="m", facts=HostFacts(is_pinned=True))
    first = report("a", told=model.assignment)
    controller.reconcile([pinned, first], {}, 0.0)
    assert controller.reconcile([pinned, report("b")], {}, 1.0) == []
    assert controller.reconcile([report("b")], {}, 2.0) == []
    [told] = controller.reconcile([report("b")], {}, 2.0 + REDIAL)
    assert told.agent == "b"


def test_an_agent_is_replaced_at_once_where_requests_wait() -> None:
    fleet = Fleet("a", "b")
    fleet.wish(wished("m", replicas=1))
    [[told]] = fleet.rest()
    del fleet.agents[told]
    assert list(fleet.look(m=fleet.now).values()) == [M1]


def test_a_model_is_loaded_when_requests_wait_for_it_and_takes_an_idle_agent() -> None:
    fleet = Fleet("a")
    fleet.wish(wished("m", preload=False), wished("n", preload=False))
    assert fleet.look() == {}
    assert fleet.controller.statuses["m"].status == "unloaded"
    assert fleet.rest(m=fleet.now) == [{"a": M1}]
    fleet.now += 5.0
    assert fleet.rest(n=fleet.now) == [{"a": N1}]
    assert fleet.controller.statuses["m"].status == "unloaded"
    assert fleet.controller.statuses["n"].status == "loaded"


def test_a_model_that_is_not_used_is_unloaded() -> None:
    fleet = Fleet("a")
    fleet.wish(wished("m", idle_timeout=60.0))
    fleet.rest()
    assert fleet.controller.reconcile_at == fleet.now + 60.0
    fleet.agents["a"].used_at = fleet.now + 30.0
    fleet.now += 60.0
    assert fleet.look() == {}
    fleet.now += 30.0
    assert fleet.look() == {"a": None}


def test_a_model_is_not_given_to_an_agent_without_the_memory() -> None:
    controller = Controller(drain_timeout=30.0)
    model = wished("m", replicas=1)
    controller.desire(state(model))
    needy = Work(revision=1, assignment=model.assignment, phase="failed", needed=9 * GIB)
    small = report("a", work=needy, facts=HostFacts(memory=8 * GIB))
    assert controller.reconcile([small], {}, 0.0) == []
    assert [issue.code for issue in controller.statuses["m"].issues][-1] == "too_large"
    large = report("b", facts=HostFacts(memory=16 * GIB))
    assert [each.agent for each in controller.reconcile([small, large], {}, 0.0)] == ["b"]


def test_an_agent_that_failed_is_not_missing() -> None:
    controller = Controller(drain_timeout=30.0)
    model = wished("m", replicas=1)
    controller.desire(state(model))
    missing = Issue(code="not_found", message="/nope/x.gguf is not there")
    failed = Work(revision=1, assignment=model.assignment, phase="failed")
    controller.reconcile([report("a", work=failed, issues=(missing,))], {}, 0.0)
    assert [issue.code for issue in controller.statuses["m"].issues] == ["not_found"]


def test_a_dry_run_says_what_each_agent_would_do_and_changes_nothing() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.wish(wished("m", replicas=2))
    fleet.rest()
    reports = [agent.report() for agent in fleet.agents.values()]

    def plans(*models: DesiredModel) -> list[tuple[str, str | None]]:
        found = fleet.controller.dry_run(state(*models), reports, {}, fleet.now)
        return [(plan.action, plan.model) for plan in found.agents]

    assert plans(wished("m", replicas=2)) == [("keep", "m"), ("keep", "m"), ("keep", None)]
    assert plans(wished("m", 2, replicas=2))[:2] == [("reload", "m"), ("reload", "m")]
    assert plans(wished("m")) == [("keep", "m"), ("keep", "m"), ("load", "m")]
    assert plans() == [("unload", None), ("unload", None), ("keep", None)]
    away = wished("n", labels={"gpu": "yes"})
    lacking = fleet.controller.dry_run(state(away), reports, {}, fleet.now).shortages
    assert {name: issue.message for name, issue in lacking.items()} == {
        "n": "no agent with the labels gpu=yes that takes models is connected yet"
    }
    assert fleet.look() == {}


def test_pinned_and_cordoned_agents_are_left_alone() -> None:
    fleet = Fleet("a", "b")
    fleet.agents["a"].is_pinned = True
    fleet.agents["b"].is_cordoned = True
    fleet.wish(wished("m"))
    assert fleet.look() == {}
    assert [issue.code for issue in fleet.controller.statuses["m"].issues] == ["no_agent"]
    fleet.agents["b"].is_cordoned = False
    assert fleet.look() == {"b": M1}


def test_an_agent_gets_only_models_that_its_key_allows() -> None:
    fleet = Fleet("a", "b")
    fleet.agents["a"].allowed = ["n"]
    fleet.wish(wished("m", replicas=2), wished("n", replicas=1))
    assert fleet.rest() == [{"a": N1, "b": M1}]
    [issue] = fleet.controller.statuses["m"].issues
    assert issue.message == (
        "one more agent is needed; none is free, and the keys of 1 do not allow it"
    )


def test_a_model_that_no_key_allows_says_so() -> None:
    fleet = Fleet("a")
    fleet.agents["a"].allowed = ["n"]
    fleet.wish(wished("m"))
    assert fleet.look() == {}
    assert fleet.controller.statuses["m"].status == "waiting"
    assert [each.code for each in fleet.controller.statuses["m"].issues] == ["key_forbids"]
    fleet.agents["a"].allowed = None
    assert fleet.look() == {"a": M1}


def test_what_came_later_is_for_agents_whose_version_knows_it() -> None:
    fleet = Fleet("a", "b")
    fleet.agents["a"].protocol = fleet.agents["b"].protocol = PROTOCOL_VERSION - 1
    plain, later = wished("m"), wished("m", engine=LaterOptions(mood="good"))
    fleet.wish(later)
    assert fleet.look() == {}
    assert [each.code for each in fleet.controller.statuses["m"].issues] == ["agent_too_old"]
    fleet.agents["b"].protocol = PROTOCOL_VERSION
    fleet.wish(replace(later, slots=2))
    assert fleet.look() == {"b": later.source}
    assert fleet.controller.statuses["m"].issues == ()
    fleet.wish(plain)
    assert fleet.look()["a"] == plain.source


BALANCERS = 3
EVENTS = st.tuples(
    st.sampled_from(["lead", "follow", "tell", "deliver", "report"]),
    st.integers(0, BALANCERS - 1),
)


class History:
    """Balancers, one agent, and orders on their way. A balancer may not know that it leads no more.

    `epoch` is the store's.
    """

    def __init__(self) -> None:
        self.balancers = [OrderNumbers() for _ in range(BALANCERS)]
        for each in self.balancers:
            each.follow()
        self.ways: list[deque[int]] = [deque() for _ in range(BALANCERS)]
        self.epoch = 0
        self.obeyed = 0
        self.given: set[int] = set()

    def do(self, event: str, which: int) -> None:
        balancer, way = self.balancers[which], self.ways[which]
        match event:
            case "lead":
                self.epoch = max(self.epoch, balancer.outbid or 0) + 1
                balancer.lead(self.epoch)
            case "follow":
                balancer.follow()
            case "tell" if balancer.may_order:
                number = balancer.next()
                assert number not in self.given, "two orders have one number"
                self.given.add(number)
                way.append(number)
            case "deliver" if way:
                self.obeyed = max(self.obeyed, way.popleft())  # as `Assigner` does
            case "report":
                balancer.seen(self.obeyed)


@given(st.lists(EVENTS, max_size=60))
def test_an_old_leader_never_displaces_a_later_one(events: list[tuple[str, int]]) -> None:
    history = History()
    for event, which in events:
        history.do(event, which)
    # Whoever leads now tells one more order; then everything that is on its way arrives.
    history.do("lead", 0)
    last = history.balancers[0].next()
    for way in [deque([last]), *history.ways]:
        history.obeyed = max([history.obeyed, *way])
    assert history.obeyed == last
    for balancer in history.balancers[1:]:
        balancer.seen(history.obeyed)
        assert not balancer.may_order or epoch_of(balancer.next()) == 0


def test_a_balancer_that_is_alone_goes_on_after_what_agents_know() -> None:
    numbers = OrderNumbers()
    numbers.seen(5 * VERSIONS + 7)
    assert numbers.may_order and numbers.outbid is None
    assert numbers.next() == 5 * VERSIONS + 8


def test_a_new_store_has_to_go_beyond_what_agents_know() -> None:
    numbers = OrderNumbers()
    numbers.lead(1)
    numbers.seen(5 * VERSIONS + 7)
    assert (numbers.may_order, numbers.outbid) == (False, 5)
    with pytest.raises(RuntimeError, match="another balancer leads"):
        numbers.next()
    numbers.lead(6)
    assert numbers.next() == 6 * VERSIONS + 1


def test_a_number_that_cannot_have_been_given_is_not_believed() -> None:
    """Orders beyond the largest number could not be sent to anybody."""
    numbers = OrderNumbers()
    numbers.seen(2**53)
    assert numbers.next() == 1
    numbers.seen(MOST_BELIEVED - 1)
    assert numbers.next() == MOST_BELIEVED
    numbers.seen(MOST_BELIEVED)
    assert numbers.next() == MOST_BELIEVED + 1


def test_orders_say_which_hosts_may_send_files_without_tls() -> None:
    fleet = Fleet("x")
    fleet.controller = Controller(drain_timeout=30.0, http_hosts=("files.lan",))
    fleet.wish(wished("m", source=OPEN))
    fleet.now += SETTLE
    assert fleet.look() == {"x": OPEN}
    assert hosts_told(fleet) == ("files.lan",)
    fleet.act()
    assert fleet.look() == {}
    fleet.wish(wished("n"))
    fleet.look()
    assert hosts_told(fleet) == (), "none of its files comes without TLS"


OPEN = "http://files.lan/m.gguf"


def hosts_told(fleet: Fleet) -> tuple[str, ...]:
    order = fleet.agents["x"].inbox[-1]
    assert order.assignment is not None
    return order.assignment.http_hosts


def restarted(fleet: Fleet, *http_hosts: str) -> None:
    """Another balancer over the same desired state, whom its agent dials again."""
    desired = fleet.controller.desired
    assert desired is not None
    fleet.controller = Controller(drain_timeout=30.0, http_hosts=http_hosts)
    fleet.controller.restored(desired, fleet.now)
    fleet.now += SETTLE


@pytest.mark.parametrize("what_becomes_of_it", ["it is fetched", "it fails", "it is served"])
def test_after_a_restart_agents_hear_which_hosts_are_allowed_now(what_becomes_of_it: str) -> None:
    fleet = Fleet("x")
    if what_becomes_of_it == "it fails":
        fleet.bad.add(OPEN)

    def act() -> None:
        if what_becomes_of_it == "it is fetched":
            fleet.agents["x"].hear()
        else:
            fleet.act()

    fleet.controller = Controller(drain_timeout=30.0, http_hosts=("old.lan",))
    fleet.wish(wished("m", source=OPEN))
    fleet.now += SETTLE
    fleet.look()
    act()
    restarted(fleet, "files.lan")
    assert fleet.look() == {"x": OPEN}
    assert hosts_told(fleet) == ("files.lan",)
    act()
    assert fleet.look() == {}, "once"
    restarted(fleet)
    assert fleet.look() == {"x": OPEN}
    assert hosts_told(fleet) == ()
