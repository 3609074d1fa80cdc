"""Dispatch: examples for each rule, then any history whatever against the invariants."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.dispatch import RETRY_AFTER, Assign, Dispatch
from arriero.shared.errors import ModelNotFound, QueueFull
from arriero.shared.inference import RequestId

A, B, C = LinkId(1), LinkId(2), LinkId(3)


def arrive(dispatch: Dispatch, id: str, model: str | None = None) -> list[Assign] | Refuse:
    return dispatch.arrived(RequestId(id), model)


def join(
    dispatch: Dispatch,
    link: LinkId,
    *,
    slots: int = 1,
    model: str | None = "m",
    is_accepting: bool = True,
) -> list[Assign]:
    return dispatch.agent_joined(link, model=model, slots=slots, is_accepting=is_accepting)


def assign(id: str, link: LinkId) -> Assign:
    return Assign(RequestId(id), link)


def test_without_agents_requests_wait_and_start_in_their_order() -> None:
    dispatch = Dispatch(10)
    for id in ("1", "2", "3"):
        assert arrive(dispatch, id) == []
    assert join(dispatch, A, slots=2) == [assign("1", A), assign("2", A)]
    assert dispatch.ended(RequestId("1")) == [assign("3", A)]
    dispatch.check_integrity()


def test_load_is_spread_by_the_share_of_slots_that_are_taken() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=4)
    join(dispatch, B, slots=2)
    links = [arrive(dispatch, str(i)) for i in range(6)]
    assert [each[0].link for each in links if isinstance(each, list)] == [A, B, A, B, A, A]


def test_of_equally_loaded_agents_the_one_that_waited_longest_gets_work() -> None:
    dispatch = Dispatch(10)
    for link in (A, B, C):
        join(dispatch, link)
    for i, link in enumerate((A, B, C, A)):
        assert arrive(dispatch, str(i)) == [assign(str(i), link)]
        dispatch.ended(RequestId(str(i)))


def test_the_queue_has_a_limit_for_newcomers() -> None:
    dispatch = Dispatch(1)
    assert arrive(dispatch, "1") == []
    refusal = arrive(dispatch, "2")
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "queue_full"
    assert refusal.error.retry_after == RETRY_AFTER
    dispatch.ended(RequestId("1"))
    assert arrive(dispatch, "3") == []
    dispatch.check_integrity()


def test_without_queueing_a_request_is_assigned_or_refused() -> None:
    dispatch = Dispatch(0)
    assert isinstance(arrive(dispatch, "1"), Refuse)
    join(dispatch, A)
    assert arrive(dispatch, "2") == [assign("2", A)]
    assert arrive(dispatch, "3") == Refuse(
        RequestId("3"), QueueFull("no slot is free and queueing is off", retry_after=RETRY_AFTER)
    )


def test_what_comes_back_waits_even_where_newcomers_may_not() -> None:
    dispatch = Dispatch(0)
    join(dispatch, A)
    arrive(dispatch, "1")
    assert dispatch.came_back(RequestId("1")) == []
    assert dispatch.num_waiting == 1
    assert dispatch.agent_rested(A) == [assign("1", A)]


def test_what_comes_back_goes_before_all_others_in_its_old_order() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2", "3", "4"):
        arrive(dispatch, id)
    assert dispatch.agent_left(A, ended=[RequestId("2")]) == []
    assert join(dispatch, B, slots=3) == [assign("1", B), assign("3", B), assign("4", B)]


def test_what_comes_back_one_by_one_in_any_order_is_in_the_old_order() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    for id in ("1", "2", "3"):
        arrive(dispatch, id)
    dispatch.came_back(RequestId("2"))
    dispatch.came_back(RequestId("1"))
    assert dispatch.agent_rested(A) == [assign("1", A), assign("2", A)]


def test_an_agent_that_was_full_gets_nothing_until_something_of_it_ends() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2"):
        arrive(dispatch, id)
    assert dispatch.came_back(RequestId("2")) == []
    assert arrive(dispatch, "3") == []
    assert dispatch.ended(RequestId("1")) == [assign("2", A), assign("3", A)]


def test_what_a_full_agent_gave_back_goes_to_another_at_once() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A)
    join(dispatch, B)
    arrive(dispatch, "1")
    assert dispatch.came_back(RequestId("1")) == [assign("1", B)]


def test_a_model_is_served_by_those_who_have_it() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model="m")
    join(dispatch, B, model="n")
    assert arrive(dispatch, "1", "n") == [assign("1", B)]
    assert arrive(dispatch, "2", "n") == []
    assert arrive(dispatch, "3", None) == [assign("3", A)]
    assert arrive(dispatch, "4", None) == []
    assert dispatch.ended(RequestId("1")) == [assign("2", B)]
    assert dispatch.ended(RequestId("2")) == [assign("4", B)]


def test_an_unknown_model_is_refused_where_others_are_served() -> None:
    dispatch = Dispatch(10)
    assert arrive(dispatch, "early", "m") == []
    join(dispatch, A, model="n")
    refusal = arrive(dispatch, "1", "m")
    assert refusal == Refuse(
        RequestId("1"), ModelNotFound("no agent serves the model `m`; served: n", field="model")
    )
    assert dispatch.num_waiting == 1, "who waits already goes on waiting"


def test_where_no_agent_has_a_model_yet_requests_wait_for_one() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model=None)
    assert arrive(dispatch, "1", "m") == []
    assert arrive(dispatch, "2", None) == []
    assert dispatch.agent_changed(A, model="m", slots=1, is_accepting=True) == [assign("1", A)]


def test_slots_cut_below_what_runs_give_nothing_until_enough_has_ended() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2", "3", "4"):
        arrive(dispatch, id)
    assert dispatch.agent_changed(A, model="m", slots=1, is_accepting=True) == []
    assert dispatch.ended(RequestId("1")) == []
    assert dispatch.ended(RequestId("2")) == []
    assert dispatch.ended(RequestId("3")) == [assign("4", A)]
    dispatch.check_integrity()


def test_a_draining_agent_finishes_and_takes_nothing() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    arrive(dispatch, "1")
    dispatch.agent_changed(A, model="m", slots=2, is_accepting=False)
    assert arrive(dispatch, "2") == []
    assert not dispatch.is_ready
    assert dispatch.ended(RequestId("1")) == []
    assert dispatch.agent_changed(A, model="m", slots=2, is_accepting=True) == [assign("2", A)]


def test_stranded_are_those_no_agent_will_take() -> None:
    dispatch = Dispatch(10)
    arrive(dispatch, "1", "m")
    arrive(dispatch, "2", "n")
    join(dispatch, A, model="m", slots=0)
    assert sorted(dispatch.stranded()) == ["1", "2"]
    dispatch.agent_changed(A, model="m", slots=1, is_accepting=True)
    assert dispatch.stranded() == ["2"]


def test_mistakes_of_the_caller_raise() -> None:
    dispatch = Dispatch(10)
    arrive(dispatch, "1")
    with pytest.raises(ValueError, match="already"):
        arrive(dispatch, "1")
    with pytest.raises(ValueError, match="not running"):
        dispatch.came_back(RequestId("1"))
    dispatch.ended(RequestId("1"))
    with pytest.raises(KeyError):
        dispatch.ended(RequestId("1"))
    join(dispatch, A)
    with pytest.raises(ValueError, match="already"):
        join(dispatch, A)


@dataclass
class Agent:
    """What the machine knows of an agent: its own words, and what it was given."""

    slots: int
    model: str | None
    is_accepting: bool
    is_full: bool = False
    running: set[RequestId] = field(default_factory=set)

    def has_slot_for(self, model: str | None) -> bool:
        serves = self.model is not None and model in (None, self.model)
        return serves and self.is_accepting and not self.is_full and len(self.running) < self.slots


MODELS = st.sampled_from([None, "m", "n"])
SLOTS = st.integers(0, 3)


class DispatchMachine(RuleBasedStateMachine):
    """Any history of requests and agents, watched from outside."""

    @initialize(max_buffered=st.integers(0, 4))
    def start(self, max_buffered: int) -> None:
        self.dispatch = Dispatch(max_buffered)
        self.max_buffered = max_buffered
        self.models: dict[RequestId, str | None] = {}
        self.waiting: list[RequestId] = []
        self.agents: dict[LinkId, Agent] = {}
        self.num_links = 0

    def running(self) -> list[RequestId]:
        return sorted(id for agent in self.agents.values() for id in agent.running)

    def follow(self, assigned: list[Assign]) -> None:
        for assign in assigned:
            agent = self.agents[assign.link]
            model = self.models[assign.request]
            assert agent.has_slot_for(model), "more than the agent has, or not its model"
            older = self.waiting[: self.waiting.index(assign.request)]
            assert all(self.models[id] != model for id in older), "out of order"
            self.waiting.remove(assign.request)
            agent.running.add(assign.request)

    def wait(self, *ids: RequestId) -> None:
        self.waiting = sorted([*self.waiting, *ids], key=lambda id: int(id))

    @rule(model=MODELS)
    def arrives(self, model: str | None) -> None:
        id = RequestId(str(len(self.models)))
        self.models[id] = model
        served = {agent.model for agent in self.agents.values()} - {None}
        loads = {
            link: len(agent.running) / agent.slots
            for link, agent in self.agents.items()
            if agent.has_slot_for(model)
        }
        answer = self.dispatch.arrived(id, model)
        if isinstance(answer, Refuse):
            is_unknown = model is not None and bool(served) and model not in served
            is_full = not loads and len(self.waiting) >= self.max_buffered
            assert answer.error.code == ("model_not_found" if is_unknown else "queue_full")
            assert is_unknown or is_full
        else:
            assert loads or len(self.waiting) < self.max_buffered, "more wait than may"
            self.wait(id)
            self.follow(answer)
            assert [loads[each.link] for each in answer] == sorted(loads.values())[:1]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(id)
        assert self.dispatch.ended(id) == []

    @precondition(lambda self: self.running())
    @rule(data=st.data(), is_given_back=st.booleans())
    def ends(self, data: st.DataObject, is_given_back: bool) -> None:
        id = data.draw(st.sampled_from(self.running()))
        agent = next(agent for agent in self.agents.values() if id in agent.running)
        agent.running.remove(id)
        agent.is_full = is_given_back
        if is_given_back:
            self.wait(id)
            self.follow(self.dispatch.came_back(id))
        else:
            self.follow(self.dispatch.ended(id))

    @rule(slots=SLOTS, model=MODELS, is_accepting=st.booleans())
    def joins(self, slots: int, model: str | None, is_accepting: bool) -> None:
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = Agent(slots, model, is_accepting)
        self.follow(
            self.dispatch.agent_joined(link, model=model, slots=slots, is_accepting=is_accepting)
        )

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), slots=SLOTS, model=MODELS, is_accepting=st.booleans())
    def changes(
        self, data: st.DataObject, slots: int, model: str | None, is_accepting: bool
    ) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        agent = self.agents[link]
        agent.slots, agent.model, agent.is_accepting = slots, model, is_accepting
        agent.is_full = False
        self.follow(
            self.dispatch.agent_changed(link, model=model, slots=slots, is_accepting=is_accepting)
        )

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def rests(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.agents[link].is_full = False
        self.follow(self.dispatch.agent_rested(link))

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        running = self.agents.pop(link).running
        ended = data.draw(st.sets(st.sampled_from(sorted(running)))) if running else set()
        self.wait(*(running - ended))
        self.follow(self.dispatch.agent_left(link, ended))

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        for id in self.waiting:
            assert not any(a.has_slot_for(self.models[id]) for a in self.agents.values())

    @invariant()
    def counts_agree(self) -> None:
        dispatch = self.dispatch
        dispatch.check_integrity()
        assert dispatch.num_waiting == len(self.waiting)
        assert dispatch.num_running == len(self.running())
        assert dispatch.num_slots == sum(agent.slots for agent in self.agents.values())
        for link, agent in self.agents.items():
            assert set(dispatch.running_on(link)) == agent.running

    def teardown(self) -> None:
        for id in [*self.waiting, *self.running()]:
            self.dispatch.ended(id)
        for link in self.agents:
            self.dispatch.agent_left(link, ())
        self.dispatch.check_integrity()
        assert (self.dispatch.num_waiting, self.dispatch.num_running) == (0, 0)
        assert (self.dispatch.num_slots, self.dispatch.is_ready) == (0, False)


TestDispatchMachine = DispatchMachine.TestCase
TestDispatchMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
