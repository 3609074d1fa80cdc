"""Dispatch: any history of requests and agents against the invariants."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch import Assign, Dispatch
from arriero.balancer.fleet.requests.routing import RoutingRequest
from arriero.shared.inference import RequestId


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


MODELS = st.sampled_from([None, "m", "m", "m", "n"])
"""Mostly one model, so that agents have several of its requests and their order shows."""
SLOTS = st.integers(0, 5)


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

    @rule(model=MODELS, num_requests=st.integers(1, 3))
    def arrive(self, model: str | None, num_requests: int) -> None:
        for _ in range(num_requests):
            self.arrives(model)

    def arrives(self, model: str | None) -> None:
        id = RequestId(str(len(self.models)))
        self.models[id] = model
        loads = {
            link: len(agent.running) / agent.slots
            for link, agent in self.agents.items()
            if agent.has_slot_for(model)
        }
        answer = self.dispatch.enqueue(id, RoutingRequest(model=model))
        if isinstance(answer, Refuse):
            assert answer.error.code == "queue_full"
            assert not loads and len(self.waiting) >= self.max_buffered
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
    def places_are_what_counting_says(self) -> None:
        able = [a for a in self.agents.values() if a.is_accepting and a.slots and a.model]
        served = {agent.model for agent in able}
        for id in self.waiting:
            model = self.models[id]
            rivals = {None, *served} if model is None else {None, model}
            ahead = self.waiting[: self.waiting.index(id)]
            place = 1 + sum(self.models[each] in rivals for each in ahead)
            assert self.dispatch.place_of(id) == place
            slots = sum(agent.slots for agent in able if model in (None, agent.model))
            assert self.dispatch.num_slots_for(model) == slots

    @invariant()
    def counts_agree(self) -> None:
        dispatch = self.dispatch
        dispatch.check_integrity()
        assert dispatch.num_waiting == len(self.waiting)
        assert dispatch.num_running == len(self.running())
        assert dispatch.num_slots == sum(agent.slots for agent in self.agents.values())
        for link, agent in self.agents.items():
            assert set(dispatch.running_on(link)) == agent.running

    @invariant()
    def what_an_agent_runs_is_listed_first_arrived_first(self) -> None:
        for link in self.agents:
            arrivals = [int(id) for id in self.dispatch.running_on(link)]
            assert arrivals == sorted(arrivals)

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
