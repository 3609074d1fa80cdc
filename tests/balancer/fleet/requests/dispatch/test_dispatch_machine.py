"""Dispatch: any history of requests and agents against the invariants."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch.dispatch import AssignSlot, Dispatch
from arriero.balancer.fleet.requests.eligibility import (
    Engine,
    Offer,
    QueueKey,
    model_of,
)
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.routing.policies import POLICIES, policy_of
from arriero.balancer.fleet.routing.policy import RoutingPolicy
from tests.balancer.fleet.builders import asking


@dataclass
class Agent:
    """What the machine knows of an agent: its own words, and what it was given."""

    offer: Offer
    is_full: bool = False
    running: set[Request] = field(default_factory=set)

    def has_slot_for(self, key: QueueKey) -> bool:
        model, fingerprint = self.offer.model, self.offer.fingerprint
        engine = None if fingerprint is None else (model, fingerprint)
        serves = model is not None and key in (None, model, engine)
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
ASKED = st.builds(
    dict,
    model=MODELS,
    kind=st.sampled_from(["default", "default", "interactive", "batch"]),
    caller=st.sampled_from([ANONYMOUS, Caller("key"), Caller(connection=1), Caller(connection=2)]),
    charge=st.integers(1, 100),
)


class DispatchMachine(RuleBasedStateMachine):
    """Any history of requests and agents, watched from outside."""

    @initialize(max_buffered=st.integers(0, 4), policy=st.sampled_from([*map(policy_of, POLICIES)]))
    def start(self, max_buffered: int, policy: type[RoutingPolicy]) -> None:
        self.dispatch = Dispatch(max_buffered, policy())
        self.max_buffered = max_buffered
        self.queue_keys: dict[Request, QueueKey] = {}
        self.waiting: list[Request] = []
        self.assigned: set[Request] = set()
        self.agents: dict[LinkId, Agent] = {}
        self.num_links = 0

    def running(self) -> list[Request]:
        return sorted(id for agent in self.agents.values() for id in agent.running)

    def follow(self, assigned: list[AssignSlot]) -> None:
        for assign in assigned:
            agent = self.agents[assign.link]
            key = self.queue_keys[assign.request]
            assert agent.has_slot_for(key), "more than the agent has, or not its model"
            older = self.waiting[: self.waiting.index(assign.request)]
            assert not any(self.is_like(id, assign.request) for id in older), "out of order"
            self.waiting.remove(assign.request)
            agent.running.add(assign.request)
            self.assigned.add(assign.request)

    def is_like(self, one: Request, other: Request) -> bool:
        """Whether the same caller waits for the same, with the same priority."""
        of_one = (one.caller, one.kind) == (other.caller, other.kind)
        return of_one and self.queue_keys[one] == self.queue_keys[other]

    def wait(self, *ids: Request) -> None:
        self.waiting = sorted([*self.waiting, *ids], key=int)

    @rule(asked=ASKED, num_requests=st.integers(1, 3), seconds=st.sampled_from([0.0, 15.0]))
    def arrive(self, asked: dict[str, Any], num_requests: int, seconds: float) -> None:
        self.dispatch.now += seconds
        for _ in range(num_requests):
            self.arrives(asked)

    def arrives(self, asked: dict[str, Any]) -> None:
        id = asking(str(len(self.queue_keys)), **asked)
        self.queue_keys[id] = model = asked["model"]
        self.make_room(id)
        loads = {
            link: len(agent.running) / agent.offer.slots
            for link, agent in self.agents.items()
            if agent.has_slot_for(model)
        }
        answer = self.dispatch.enqueue(id)
        if isinstance(answer, Refuse):
            assert answer.error.code == "queue_full"
            assert not loads and len(self.waiting) >= self.max_buffered
        else:
            assert loads or len(self.waiting) < self.max_buffered, "more wait than may"
            self.wait(id)
            self.follow(answer)
            assert [loads[each.link] for each in answer] == sorted(loads.values())[:1]

    def make_room(self, newcomer: Request) -> None:
        """Of a full queue goes what was never assigned, of whoever has more of that."""
        gone = self.dispatch.makes_room_for(newcomer)
        if gone is None:
            return
        assert len(self.waiting) >= self.max_buffered
        assert gone in self.waiting
        assert gone not in self.assigned, "turned away after it ran"
        self.waiting.remove(gone)
        assert self.dispatch.ended(gone) == []

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(id)
        assert self.dispatch.ended(id) == []

    def bind(self, id: Request) -> None:
        """A part of it was answered, so it goes on with the same engine only."""
        offer = next(agent.offer for agent in self.agents.values() if id in agent.running)
        if offer.model is not None and offer.fingerprint is not None:
            self.queue_keys[id] = Engine(offer.model, offer.fingerprint)
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

    @precondition(lambda self: self.running())
    @rule(data=st.data(), has_begun=st.booleans())
    def gives_way(self, data: st.DataObject, has_begun: bool) -> None:
        id = data.draw(st.sampled_from(self.running()))
        if has_begun:
            self.bind(id)
        agent = next(agent for agent in self.agents.values() if id in agent.running)
        agent.running.remove(id)
        self.wait(id)
        self.follow(self.dispatch.gave_way(id))

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
            assert not any(a.has_slot_for(self.queue_keys[id]) for a in self.agents.values())

    @invariant()
    def those_whom_nobody_serves_are_known(self) -> None:
        served = [agent for agent in self.agents.values() if agent.offer.is_able]
        stranded = {
            id
            for id in self.waiting
            if not any(self.queue_keys[id] in agent.offer.keys for agent in served)
        }
        assert set(self.dispatch.stranded()) == stranded

    @invariant()
    def places_are_those_of_rivals(self) -> None:
        """Of requests that the same agents could start, each has a place of its own."""
        offers = [a.offer for a in self.agents.values() if a.offer.is_able]
        served = {key for offer in offers for key in offer.keys}
        for id in self.waiting:
            key = self.queue_keys[id]
            rivals = {None, *served} if key is None else {None, key, model_of(key)}
            all_keys = [self.queue_keys[each] for each in self.waiting]
            engines = {e for e in all_keys if isinstance(e, Engine) and e.model == key}
            most = sum(each in rivals | engines for each in all_keys)
            assert 1 <= self.dispatch.place_of(id) <= most
            slots = sum(offer.slots for offer in offers if key in offer.keys)
            assert self.dispatch.num_slots_for(key) == slots
        for key in {self.queue_keys[id] for id in self.waiting}:
            alike = [id for id in self.waiting if self.queue_keys[id] == key]
            places = [self.dispatch.place_of(id) for id in alike]
            assert len(set(places)) == len(places), "two have one place"

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
TestDispatchMachine.settings = settings(stateful_step_count=40)
