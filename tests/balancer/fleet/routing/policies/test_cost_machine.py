"""Routing by prefixes within dispatch: any history, watched from outside."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch.dispatch import AssignSlot, Dispatch
from arriero.balancer.fleet.requests.eligibility import Offer
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.routing.policies.cost import LeastCost
from arriero.balancer.fleet.routing.rates import Measurement
from arriero.shared.inference import Rates, Usage
from tests.balancer.fleet.builders import asking, renamed

MODELS = st.sampled_from(["m", "m", "m", "n"])
SHARED = ("You are brief. " * 200, "You are long-winded. " * 100)
LONGEST_WAIT = 3.0


class RoutingMachine(RuleBasedStateMachine):
    """A few agents, and conversations that go on, share beginnings or have none."""

    @initialize(max_buffered=st.sampled_from([0, 2, 20]))
    def start(self, max_buffered: int) -> None:
        self.max_buffered = max_buffered
        self.router = LeastCost(longest_wait=LONGEST_WAIT)
        self.dispatch = Dispatch(max_buffered, self.router)
        self.offers: dict[LinkId, Offer] = {}
        self.running: dict[Request, LinkId] = {}
        self.models: dict[Request, str | None] = {}
        self.waiting: set[Request] = set()
        self.held: dict[Request, float] = {}
        self.were_held: set[Request] = set()
        self.num_links = 0

    def free(self, link: LinkId) -> bool:
        offer = self.offers[link]
        return offer.is_able and list(self.running.values()).count(link) < offer.slots

    def follow(self, assigned: list[AssignSlot]) -> None:
        for assign in assigned:
            offer = self.offers[assign.link]
            assert self.free(assign.link), "a full, draining or empty agent"
            assert self.models[assign.request] in (None, offer.model), "another model"
            self.waiting.discard(assign.request)
            self.held.pop(assign.request, None)
            self.running[assign.request] = assign.link
        for hold in self.dispatch.take_holds():
            if hold.request in self.waiting and hold.request.held_for is not None:
                assert hold.request not in self.were_held, "held twice"
                assert 0 < hold.seconds <= LONGEST_WAIT
                self.held[hold.request] = hold.seconds
                self.were_held.add(hold.request)
        self.held = {id: s for id, s in self.held.items() if id.held_for is not None}

    @rule(
        model=st.none() | MODELS,
        system=st.sampled_from(SHARED),
        turns=st.integers(0, 3),
        who=st.sampled_from("abc"),
    )
    def arrives(self, model: str | None, system: str, turns: int, who: str) -> None:
        text = system + "".join(f"{who} said {number} things. " * 60 for number in range(turns))
        id = asking(str(len(self.models)), model, prompt=text)
        self.models[id] = model
        answer = self.dispatch.enqueue(id)
        if isinstance(answer, Refuse):
            assert len(self.waiting) >= self.max_buffered
        else:
            self.waiting.add(id)
            self.follow(answer)
        assert len(self.waiting) <= self.max_buffered or isinstance(answer, Refuse)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cached=st.integers(0, 3000), speed=st.sampled_from([5.0, 50.0, 5000.0]))
    def ends(self, data: st.DataObject, cached: int, speed: float) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        self.dispatch.prompt_read(id, 3000, cached)
        usage = Usage(prompt_tokens=3000, cached_tokens=cached, completion_tokens=20)
        rates = Rates(prefill_tokens_per_second=speed, decode_tokens_per_second=speed / 5)
        del self.running[id]
        self.follow(self.dispatch.ended(id, Measurement(usage, rates, running=1, seconds=5.0)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fails(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[id]
        self.follow(self.dispatch.ended(id))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.discard(id)
        self.held.pop(id, None)
        self.follow(self.dispatch.ended(id))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def has_waited_long_enough(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.held)))
        self.follow(self.dispatch.release(id))
        assert id.held_for is None

    @precondition(lambda self: self.num_links < 5)
    @rule(model=MODELS, slots=st.integers(1, 2))
    def joins(self, model: str, slots: int) -> None:
        self.num_links += 1
        link = LinkId(self.num_links)
        self.offers[link] = Offer(model=model, slots=slots, cache_tokens=8000)
        self.follow(self.dispatch.agent_joined(link, self.offers[link]))

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), model=MODELS, slots=st.integers(0, 3), is_accepting=st.booleans())
    def changes(self, data: st.DataObject, model: str, slots: int, is_accepting: bool) -> None:
        link = data.draw(st.sampled_from(sorted(self.offers)))
        self.offers[link] = Offer(model=model, slots=slots, is_accepting=is_accepting)
        self.follow(self.dispatch.agent_changed(link, self.offers[link]))

    @precondition(lambda self: self.offers)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.offers)))
        del self.offers[link]
        back = {id for id, at in self.running.items() if at == link}
        self.running = {id: at for id, at in self.running.items() if at != link}
        self.waiting |= back
        self.follow(self.dispatch.agent_left(link, ()))
        assert not self.router.believes_in(link)

    @rule(names=st.sampled_from([{"n": "m"}, {"x": "m"}]))
    def is_renamed(self, names: dict[str, str]) -> None:
        for id in self.dispatch.following(names):
            self.models[id] = names[self.models[id] or ""]
        self.follow(renamed(self.dispatch, names))

    @invariant()
    def who_waits_beside_a_free_agent_is_held_for_another(self) -> None:
        for id in self.waiting - self.held.keys():
            takers = [a for a, o in self.offers.items() if self.models[id] in (None, o.model)]
            assert not any(self.free(link) for link in takers), "waits in vain"

    @invariant()
    def all_agrees(self) -> None:
        self.dispatch.check_integrity()
        assert self.dispatch.num_waiting == len(self.waiting)
        assert {id for id in self.waiting if id.held_for is not None} == self.held.keys()
        for id in self.waiting:
            assert self.dispatch.place_of(id) >= 1
        for link in self.offers:
            expected = {id for id, at in self.running.items() if at == link}
            assert set(self.dispatch.running_on(link)) == expected

    def teardown(self) -> None:
        for id in [*self.waiting, *self.running]:
            self.dispatch.ended(id)
        for link in self.offers:
            self.dispatch.agent_left(link, ())
        self.dispatch.check_integrity()
        assert self.router.num_beliefs == 0


TestRoutingMachine = RoutingMachine.TestCase
TestRoutingMachine.settings = settings(stateful_step_count=30)
