"""Dispatch: any history of requests and agents against the invariants."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch import Assign, Dispatch
from arriero.balancer.fleet.requests.routing import Engine, Offer, RoutingRequest, Wanted, model_of
from arriero.shared.inference import RequestId


@dataclass
class Agent:
    """What the machine knows of an agent: its own words, and what it was given."""

    offer: Offer
    is_full: bool = False
    running: set[RequestId] = field(default_factory=set)

    def has_slot_for(self, wanted: Wanted) -> bool:
        model, fingerprint = self.offer.model, self.offer.fingerprint
        engine = None if fingerprint is None else (model, fingerprint)
        serves = model is not None and wanted in (None, model, engine)
        has_room = not self.is_full and len(self.running) < self.offer.slots
        return serves and self.offer.is_accepting and has_room


OFFERS = st.builds(
    Offer,
    model=st.sampled_from([None, "m", "m", "m", "n"]),
    slots=st.integers(0, 5),
    is_accepting=st.booleans(),
    fingerprint=st.sampled_from([None, "f", "f", "g"]),
)
MODELS = st.sampled_from([None, "m", "m", "m", "n"])
"""Mostly one model, so that agents have several of its requests and their order shows."""


class DispatchMachine(RuleBasedStateMachine):
    """Any history of requests and agents, watched from outside."""

    @initialize(max_buffered=st.integers(0, 4))
    def start(self, max_buffered: int) -> None:
        self.dispatch = Dispatch(max_buffered)
        self.max_buffered = max_buffered
        self.wanted: dict[RequestId, Wanted] = {}
        self.waiting: list[RequestId] = []
        self.agents: dict[LinkId, Agent] = {}
        self.num_links = 0

    def running(self) -> list[RequestId]:
        return sorted(id for agent in self.agents.values() for id in agent.running)

    def follow(self, assigned: list[Assign]) -> None:
        for assign in assigned:
            agent = self.agents[assign.link]
            wanted = self.wanted[assign.request]
            assert agent.has_slot_for(wanted), "more than the agent has, or not its model"
            older = self.waiting[: self.waiting.index(assign.request)]
            assert all(self.wanted[id] != wanted for id in older), "out of order"
            self.waiting.remove(assign.request)
            agent.running.add(assign.request)

    def wait(self, *ids: RequestId) -> None:
        self.waiting = sorted([*self.waiting, *ids], key=lambda id: int(id))

    @rule(model=MODELS, num_requests=st.integers(1, 3))
    def arrive(self, model: str | None, num_requests: int) -> None:
        for _ in range(num_requests):
            self.arrives(model)

    def arrives(self, model: str | None) -> None:
        id = RequestId(str(len(self.wanted)))
        self.wanted[id] = model
        loads = {
            link: len(agent.running) / agent.offer.slots
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

    def bind(self, id: RequestId) -> None:
        """A part of it was answered, so it goes on with the same engine only."""
        offer = next(agent.offer for agent in self.agents.values() if id in agent.running)
        if offer.model is not None and offer.fingerprint is not None:
            self.wanted[id] = Engine(offer.model, offer.fingerprint)
            self.dispatch.bind(id, Engine(offer.model, offer.fingerprint))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), is_given_back=st.booleans(), has_begun=st.booleans())
    def ends(self, data: st.DataObject, is_given_back: bool, has_begun: bool) -> None:
        id = data.draw(st.sampled_from(self.running()))
        if has_begun:
            self.bind(id)
        agent = next(agent for agent in self.agents.values() if id in agent.running)
        agent.running.remove(id)
        agent.is_full = is_given_back
        if is_given_back:
            self.wait(id)
            self.follow(self.dispatch.came_back(id))
        else:
            self.follow(self.dispatch.ended(id))

    @rule(offer=OFFERS)
    def joins(self, offer: Offer) -> None:
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = Agent(offer)
        self.follow(self.dispatch.agent_joined(link, offer))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), offer=OFFERS)
    def changes(self, data: st.DataObject, offer: Offer) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        agent = self.agents[link]
        agent.offer, agent.is_full = offer, False
        self.follow(self.dispatch.agent_changed(link, offer))

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
        running = self.agents[link].running
        ended = data.draw(st.sets(st.sampled_from(sorted(running)))) if running else set()
        for id in data.draw(st.sets(st.sampled_from(sorted(running)))) if running else set():
            self.bind(id)
        del self.agents[link]
        self.wait(*(running - ended))
        self.follow(self.dispatch.agent_left(link, ended))

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        for id in self.waiting:
            assert not any(a.has_slot_for(self.wanted[id]) for a in self.agents.values())

    @invariant()
    def those_whom_nobody_serves_are_known(self) -> None:
        served = [agent for agent in self.agents.values() if agent.offer.is_able]
        stranded = {
            id
            for id in self.waiting
            if not any(self.wanted[id] in agent.offer.keys for agent in served)
        }
        assert set(self.dispatch.stranded()) == stranded

    @invariant()
    def places_are_what_counting_says(self) -> None:
        offers = [a.offer for a in self.agents.values() if a.offer.is_able]
        served = {key for offer in offers for key in offer.keys}
        for id in self.waiting:
            wanted = self.wanted[id]
            rivals = {None, *served} if wanted is None else {None, wanted, model_of(wanted)}
            ahead = [self.wanted[each] for each in self.waiting[: self.waiting.index(id)]]
            engines = {e for e in ahead if isinstance(e, Engine) and e.model == wanted}
            place = 1 + sum(each in rivals | engines for each in ahead)
            assert self.dispatch.place_of(id) == place
            slots = sum(offer.slots for offer in offers if wanted in offer.keys)
            assert self.dispatch.num_slots_for(wanted) == slots

    @invariant()
    def counts_agree(self) -> None:
        dispatch = self.dispatch
        dispatch.check_integrity()
        assert dispatch.num_waiting == len(self.waiting)
        assert dispatch.num_running == len(self.running())
        assert dispatch.num_slots == sum(agent.offer.slots for agent in self.agents.values())
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
