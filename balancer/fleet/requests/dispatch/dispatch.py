"""Which request goes to which agent: one method for each event of requests and agents.

Requests wait for their model or for any; `fair_queue` says which is next, `routing` which agent is
best for it. One that comes back from an agent keeps its place, which is before whatever its caller
sent since. A request that could start at once may be held instead, for an agent that has computed
much of its prompt.

A decision costs O(log agents + log waiting): free agents are ranked, per model and all together,
so no agent is looked at that is not chosen, but for a few that hold a request's prefix.

Invariants:
- No agent is given more than the slots it reported, nor more than it is allowed; after a cut,
  nothing until it is below again.
- No request waits while an agent that could serve it has a free slot, but for those that are held
  for one agent, which has computed much of their prompt; each is held once, and only for a while.
  One that is isolated waits for an agent without others, which gets none before its answer begins.
- Of one caller's requests of one class for the same model, none is assigned before one that
  arrived earlier. One of which a part was answered asks for the engine that answered it: the model
  and its fingerprint. One that is held may see later ones start elsewhere.
- No more newcomers wait than `max_buffered`; those that come back are never turned away.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .....shared.errors import QueueFull
from .....shared.inference import PriorityClass, RequestId
from ...caller import Account, Flow
from ...decisions import LinkId, Refuse
from ...load_shedding import LoadShedding, Wait, refusal_of
from ...routing.choice import Choice
from ...routing.fetches import Fetching
from ...routing.policies.cost import LeastCost
from ...routing.policy import RoutingPolicy
from ...routing.rates import Measurement
from ..eligibility import Able, ByText, Engine, Offer, QueueKey, RoutingRequest, Warm, model_of
from .fair_queue import FairQueue
from .holds import Hold, Holds
from .slots import AgentSlots, FleetSlots, Ranks

MOST_PASSED = 16
"""Requests that a free slot may pass over, one after the other, for which other agents are best."""


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Start the request on the agent; its slot is taken. It may be `fetching` a prefix first."""

    request: RequestId
    link: LinkId
    fetching: Fetching | None = None


@dataclass(slots=True)
class Entry:
    """A request, and the agent that it runs on."""

    routing: RoutingRequest
    arrival: int
    link: LinkId | None = None


class Dispatch:
    """Every method that is an event returns the assignments that have become possible.

    `now` is the time of the event: say it first. Only the share of classes that starve needs it.
    """

    def __init__(self, max_buffered: int, router: RoutingPolicy | None = None) -> None:
        self._max_buffered = max_buffered
        self.router = LeastCost() if router is None else router
        self._requests: dict[RequestId, Entry] = {}
        self._waiting = FairQueue()
        self._load_shedding = LoadShedding()
        self._slots = FleetSlots()
        self._holds = Holds()
        self._ranks = Ranks(self.router, self._slots, self._holds)
        self._num_arrived = 0
        self._isolated: set[RequestId] = set()
        """Requests that run alone on their agent, or wait for that."""
        self.now = 0.0

    # ---- what is seen

    @property
    def num_agents(self) -> int:
        """How many agents are here, whether they take work or not."""
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """The slots of all agents, taken or not."""
        return self._slots.num_slots

    @property
    def num_waiting(self) -> int:
        """How many requests have no slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """How many slots are taken."""
        return len(self._requests) - self.num_waiting

    @property
    def is_ready(self) -> bool:
        """Whether an agent that takes work has a slot, free or not."""
        return None in self._slots.served

    def running_on(self, link: LinkId) -> list[RequestId]:
        """The requests of an agent, first arrived first."""
        return self._in_order(self._slots[link].running)

    def num_running_on(self, link: LinkId) -> int:
        """How many of an agent's slots are taken."""
        return len(self._slots[link].running)

    def link_of(self, id: RequestId) -> LinkId | None:
        """The agent a request runs on, `None` while it waits."""
        return self._requests[id].link

    def stranded(self) -> list[RequestId]:
        """The waiting requests that no connected agent will ever take, as things are."""
        return self._waiting.stranded(self._slots.served)

    def waiting(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that requests wait for: how many wait, and the first of them.

        A model may come again, for requests that wait for one of its engines.
        """
        return self._waiting.models()

    def has_free_slot(self, key: QueueKey) -> bool:
        """Whether a newcomer in this queue would start at once."""
        return self._ranks.first(key) is not None

    def has_free_slot_besides(self, link: LinkId, key: QueueKey) -> bool:
        """Whether another agent than this one would start a newcomer in this queue at once."""
        if self._ranks.first(key) != link:
            return self.has_free_slot(key)
        agent = self._slots[link]
        agent.is_full = True
        self._ranks.update(agent)
        is_there = self.has_free_slot(key)
        agent.is_full = False
        self._ranks.update(agent)
        return is_there

    def num_slots_for(self, key: QueueKey) -> int:
        """The slots of agents that take requests of this queue; 0 if none does."""
        return self._slots.num_for(key)

    def is_held(self, id: RequestId) -> bool:
        """Whether a request waits for one agent alone."""
        return self._holds.link_for(id) is not None

    def queue_key_of(self, id: RequestId) -> QueueKey:
        """The key of the queue in which a request waits, or would."""
        return self._requests[id].routing.queue_key

    def place_of(self, id: RequestId) -> int:
        """The place of a waiting request, from 1: it is started after so many less one."""
        return self._waiting.place(id, self._slots.served)

    def num_waiting_of(self, kind: PriorityClass) -> int:
        """How many requests of a class have no slot."""
        return self._waiting.num_of(kind)

    @property
    def num_callers(self) -> int:
        """How many callers wait that never had an agent."""
        return self._load_shedding.num_callers

    # ---- requests

    def enqueue(self, id: RequestId, routing: RoutingRequest) -> list[AssignSlot] | Refuse:
        """A newcomer is assigned, waits (no decision), or is refused and forgotten."""
        self._arrives(id, routing)
        if not self.has_free_slot(routing.queue_key) and (error := self._refusal(id)) is not None:
            self.ended(id)
            return Refuse(id, error)
        self._load_shedding.waits(id, *_place_of(routing))
        return self._place([id])

    def resume(self, id: RequestId, routing: RoutingRequest) -> list[AssignSlot]:
        """Like `enqueue`, for a request that was accepted before: no queue is full for it."""
        self._arrives(id, routing)
        return self._place([id])

    def _arrives(self, id: RequestId, routing: RoutingRequest) -> None:
        if id in self._requests:
            raise ValueError(f"request {id} is here already")
        self._num_arrived += 1
        self._requests[id] = Entry(routing, self._num_arrived)
        self._waiting.arrived(id, routing, self.now)

    def _refusal(self, id: RequestId) -> QueueFull | None:
        """The error for a newcomer that waits as one too many."""
        num_before = self.num_waiting - 1
        if num_before < self._max_buffered:
            return None  # its place is not asked for
        position = self.place_of(id) if self._max_buffered else None
        return refusal_of(Wait(num_before=num_before, most=self._max_buffered, position=position))

    def makes_room_for(self, routing: RoutingRequest) -> RequestId | None:
        """The request that a full queue drops for a newcomer: end it before `enqueue`."""
        is_full = 0 < self._max_buffered <= self.num_waiting
        if not is_full or self.has_free_slot(routing.queue_key):
            return None
        return self._load_shedding.yields_to(*_place_of(routing))

    def ended(
        self, id: RequestId, end: Measurement | None = None, *, charge: int | None = None
    ) -> list[AssignSlot]:
        """A request is over, wherever it was; its slot serves the next. `end`, if it ended well.

        `charge` is what it counts among its caller's, where that is known by now.
        """
        request = self._requests.pop(id)
        self._isolated.discard(id)
        self._holds.forget(id)
        self._load_shedding.leaves(id)
        self._waiting.ended(id, request.routing.charge if charge is None else charge)
        if request.link is None:
            return []
        agent = self._slots[request.link]
        agent.running.remove(id)
        agent.is_full = False
        self._left_agent(id, end)
        return self._fill(agent)

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """An agent has computed the prompt of a request that it runs."""
        self.router.prompt_read(id, num_tokens, num_cached)
        self._ranks.update(self._slots[self._running(id)])

    def release(self, id: RequestId) -> list[AssignSlot]:
        """A request has waited for one agent long enough: it takes any now."""
        return self._place([id]) if self._release(id) else []

    def came_back(self, id: RequestId) -> list[AssignSlot]:
        """The agent would not start it: it counts as full, until `agent_rested` or an end there."""
        agent = self._slots[self._running(id)]
        agent.running.remove(id)
        agent.is_full = True
        self._left_agent(id)
        self._ranks.update(agent)
        self._waits_again(id)
        return self._place([id])

    def gave_way(self, id: RequestId) -> list[AssignSlot]:
        """Its agent has stopped it, and has a slot for whichever request is next; it waits."""
        agent = self._slots[self._running(id)]
        agent.running.remove(id)
        self._left_agent(id)
        self._waits_again(id)
        assigned = self._fill(agent)
        return assigned if self._requests[id].link else [*assigned, *self._place([id])]

    def bind(self, id: RequestId, engine: Engine) -> None:
        """From now on only agents like this one may have the request, which runs on one."""
        self._running(id)
        request = self._requests[id]
        request.routing = replace(request.routing, engine=engine)

    def isolate(self, id: RequestId) -> None:
        """From now on only an agent without others may have the request, which runs on one.

        Others that were isolated there before do not count.
        """
        self._running(id)
        self._isolated.add(id)
        request = self._requests[id]
        request.routing = replace(request.routing, is_isolated=True)

    def began(self, link: LinkId) -> list[AssignSlot]:
        """An answer has begun on this agent: the request that was isolated there no longer is."""
        agent = self._slots[link]
        if agent.isolated is None or agent.isolated not in agent.running:
            return []
        request = self._requests[agent.isolated]
        request.routing = replace(request.routing, is_isolated=False)
        self._isolated.discard(agent.isolated)
        agent.tried = agent.tried & agent.running | {agent.isolated}
        agent.isolated = None
        return self._fill(agent)

    def goes_on_by_text(self, id: RequestId, by_text: ByText) -> None:
        """From now on only these may have the request; if it waits, then call `retry`."""
        request = self._requests[id]
        self._release(id)
        request.routing = replace(request.routing, engine=None, able=by_text)
        if request.link is None:
            self._waiting.changed(id, self.queue_key_of(id), self.now)

    def serves(self, key: QueueKey, *, besides: LinkId | None = None) -> bool:
        """Whether an agent takes requests of this queue, `besides` one that is about to leave."""
        num_slots = self._slots.num_for(key)
        if besides is not None and (agent := self._slots[besides]).serves(key):
            num_slots -= agent.offer.slots
        return num_slots > 0

    def renamed(self, names: Mapping[str, str]) -> tuple[list[RequestId], list[AssignSlot]]:
        """Requests for a model of `names` wait for its new name there; which requests these are."""
        waiting = [id for name in names for id in self._waiting.of(name)]
        held = [id for agent in self._slots for id in self._holds.held_for(agent.link)]
        isolated = [id for id in self._isolated if self._requests[id].link is None]
        waiting += [id for id in (*held, *isolated) if model_of(self.queue_key_of(id)) in names]
        ids = self._in_order(waiting)
        for id in ids:
            self._release(id)
            request = self._requests[id]
            name = request.routing.model or ""
            request.routing = replace(request.routing, model=names.get(name, name))
            self._waiting.renamed(id, request.routing.queue_key, self.now)
        return ids, self._place(ids)

    def narrow(self, id: RequestId, able: Able) -> None:
        """From now on only agents that can do this may have the request; then call `retry`."""
        request = self._requests[id]
        self._release(id)
        request.routing = replace(request.routing, able=able)
        if request.link is None:
            self._waiting.changed(id, self.queue_key_of(id), self.now)

    def retry(self, ids: Iterable[RequestId]) -> list[AssignSlot]:
        """Assign those of `ids` that wait and need not."""
        assigned = []
        for id in ids:
            if self._requests[id].link is None:
                assigned += self._place([id])
        return assigned

    def has_agent(self, link: LinkId) -> bool:
        """Whether an agent is here."""
        return link in self._slots

    def _running(self, id: RequestId) -> LinkId:
        link = self._requests[id].link
        if link is None:
            raise ValueError(f"request {id} is not running")
        return link

    # ---- agents

    def agent_joined(self, link: LinkId, offer: Offer) -> list[AssignSlot]:
        """An agent is here."""
        self._slots.add(link)
        return self.agent_changed(link, offer)

    def agent_changed(self, link: LinkId, offer: Offer) -> list[AssignSlot]:
        """What the agent says of itself has changed; what it runs, it goes on running."""
        agent = self._slots[link]
        is_same = offer.is_able and offer.keys == agent.keys
        self._slots.offers(agent, offer)
        agent.is_full = False
        self.router.agent_is(link, offer.model, offer.cache_tokens, offer.peer, offer.home)
        released = [] if is_same else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_allowed(self, link: LinkId, num: int) -> list[AssignSlot]:
        """An agent may have so many requests at once from now on."""
        agent = self._slots[link]
        agent.offer = replace(agent.offer, allowed=num)
        released = [] if num else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_suspended(self, link: LinkId, offer: Offer) -> None:
        """An agent takes no more work, and will leave at once: those held for it wait for that."""
        agent = self._slots[link]
        self._slots.offers(agent, offer)
        self._ranks.update(agent)

    def agent_offers(self, link: LinkId, offer: Offer) -> None:
        """An agent serves other needs than before; no request waits for these."""
        self.agent_suspended(link, offer)

    def agent_rested(self, link: LinkId) -> list[AssignSlot]:
        """An agent that was full may be tried again."""
        agent = self._slots[link]
        agent.is_full = False
        return self._fill(agent)

    def agent_left(self, link: LinkId, ended: Collection[RequestId]) -> list[AssignSlot]:
        """An agent is gone: of its requests, `ended` are over and the rest come back."""
        back = [id for id in self.running_on(link) if id not in ended]
        for id in self._slots[link].running:
            self._left_agent(id)
        back = self._in_order([*back, *self._let_go(link)])
        self._slots.remove(link)
        self._ranks.remove(link)
        for id in ended:
            self._isolated.discard(id)
            self._holds.forget(id)
            self._waiting.ended(id, self._requests.pop(id).routing.charge)
        for id in back:
            if self._requests[id].link is not None:
                self._waits_again(id)
        self.router.agent_left(link)
        return self._place(sorted(back, key=lambda id: id in self._isolated))

    # ---- a slot for a request

    def _place(self, ids: Iterable[RequestId]) -> list[AssignSlot]:
        """Assign those of `ids` for which an agent is free, in this order; they wait already.

        Others that wait have no free agent (an invariant of `dispatch`), so none is overtaken.
        """
        assigned = []
        for id in ids:
            choice = self._choose(self._requests[id].routing, id)
            if choice is not None and choice.patience:
                self._hold(id, choice)
            elif choice is not None:
                assigned.append(self._assign(id, self._slots[choice.link], choice.fetching))
        return assigned

    def _choose(self, routing: RoutingRequest, id: RequestId) -> Choice | None:
        if routing.is_isolated:
            link = self._ranks.first(routing.queue_key)
            return None if link is None else Choice(link)
        may_wait = not self._holds.was_held(id) and self.num_waiting <= self._max_buffered
        return self.router.choose(
            routing.chain,
            load_of=lambda link: self._ranks.load(self._slots[link], routing.queue_key),
            free=self._ranks.first(routing.queue_key),
            cache_key=routing.cache_key,
            most_answer=routing.most_answer,
            may_wait=may_wait,
        )

    def _assign(
        self, id: RequestId, agent: AgentSlots, fetching: Fetching | None = None
    ) -> AssignSlot:
        request = self._requests[id]
        self._load_shedding.leaves(id)
        self._waiting.started(id, self._keys_of(agent), self.now)
        request.link = agent.link
        waited_for = self._holds.started(id)
        self.router.started(
            id,
            agent.link,
            request.routing.chain,
            cache_key=request.routing.cache_key,
            account=request.routing.caller.account,
            waited_for=waited_for,
            fetching=fetching,
        )
        self._slots.take(agent, id)
        agent.isolated = id if request.routing.is_isolated else None
        self._ranks.update(agent)
        return AssignSlot(id, agent.link, fetching)

    # ---- a request for a slot

    def _fill(self, agent: AgentSlots) -> list[AssignSlot]:
        """Give the agent's free slots to those who wait, in their order."""
        assigned = []
        num_passed = 0
        self._ranks.update(agent)
        while agent.has_free_slot and (id := self._next_for(agent)) is not None:
            routing = self._requests[id].routing
            choice = self._choose(routing, id) if num_passed < MOST_PASSED else None
            if choice is not None and choice.patience:
                num_passed += 1
                self._hold(id, choice)
            else:
                best = agent if choice is None else self._slots[choice.link]
                fetching = None if choice is None else choice.fetching
                assigned.append(self._assign(id, best, fetching))
        return assigned

    def _next_for(self, agent: AgentSlots) -> RequestId | None:
        if self._isolated and agent.is_apart:
            keys = {self.queue_key_of(id) for id in self._isolated if id in self._waiting}
            served = [key for key in keys if agent.serves(key)]
            if (id := self._waiting.first(served, self.now)) is not None:
                return id
        return self._waiting.first(self._keys_of(agent), self.now)

    def _keys_of(self, agent: AgentSlots) -> tuple[QueueKey, ...]:
        """The keys of the queues whose requests it could start."""
        if not self._holds.held_for(agent.link):
            return agent.keys
        return (*agent.keys, *(Warm(name, agent.link) for name in agent.offer.names))

    # ---- requests that are held, or have to wait again

    def take_holds(self) -> list[Hold]:
        """The requests that wait for one agent since the last call; they may have ended."""
        return self._holds.take_new()

    def _hold(self, id: RequestId, choice: Choice) -> None:
        self._holds.hold(id, choice.link, choice.patience)
        warm = Warm(model_of(self.queue_key_of(id)), choice.link)
        self._waiting.changed(id, warm, self.now)

    def _release(self, id: RequestId) -> bool:
        """A request takes any agent again, if it was held; whether it was."""
        if not self._holds.release(id):
            return False
        self._waiting.changed(id, self.queue_key_of(id), self.now)
        return True

    def _let_go(self, link: LinkId) -> list[RequestId]:
        """Those that are held for an agent may take any other; first arrived first."""
        ids = self._in_order(self._holds.held_for(link))
        for id in ids:
            self._release(id)
        return ids

    def _left_agent(self, id: RequestId, end: Measurement | None = None) -> None:
        """A request does not run any more; what is learnt may change how agents rank."""
        if self.router.ended(id, end):
            self._ranks.outdate()
        self._ranks.mend()

    def _waits_again(self, id: RequestId) -> None:
        request = self._requests[id]
        request.link = None
        self._waiting.came_back(id, request.routing.queue_key, self.now)

    def _in_order(self, ids: Iterable[RequestId]) -> list[RequestId]:
        return sorted(ids, key=lambda id: self._requests[id].arrival)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.router.check_integrity()
        self._waiting.check_integrity()
        self._load_shedding.check_integrity()
        self._slots.check_integrity()
        self._holds.check_integrity()
        self._ranks.check_integrity()
        running = {id: agent.link for agent in self._slots for id in agent.running}
        links = {id: request.link for id, request in self._requests.items()}
        _require(
            running == {id: link for id, link in links.items() if link is not None},
            "slots disagree",
        )
        _require(len(running) == self.num_running, "running requests are miscounted")
        _require(
            all(id in self._waiting for id, link in links.items() if link is None),
            "queues and requests disagree",
        )
        for agent in self._slots:
            is_idle = not agent.has_free_slot or self._next_for(agent) is None
            _require(is_idle, f"a request waits for {agent.link} in vain")
            held = self._holds.held_for(agent.link)
            _require(all(id in self._waiting for id in held), "a held request does not wait")


def _place_of(routing: RoutingRequest) -> tuple[Account, Flow | None, PriorityClass]:
    caller = routing.caller
    return caller.account, caller.flow, routing.priority_class


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
