"""Gives requests to agents: one method for each event of requests and agents.

Requests wait for their model or for any model. `fair_queue` decides which request is next,
`routing` which agent is best for it. A request that comes back from an agent keeps its place,
before all later requests of its caller. A request that could start at once may be held instead,
for an agent that has computed much of its prompt.

A decision costs O(log agents + log waiting): free agents are ranked, per model and all together.
So only the chosen agent is examined, and a few agents that have a prefix of the request.

Invariants:

- An agent never has more requests than its reported slots or its allowance. If these are cut, it
  gets no request until it is below them again.
- No request waits while an agent that could serve it has a free slot. An exception are requests
  that are held for one agent, which has computed much of their prompt; each is held once, for a
  limited time. Another exception are isolated requests. They wait for an agent without other
  requests, which gets none before the isolated answer begins. If an isolated request waits for
  long, one agent is emptied for it.
- Of one caller's requests of one class for the same model, none is assigned before an earlier one.
  If a part was answered, a request waits for the engine that answered it: the model and its
  fingerprint. While a request is held, later requests may start on other agents.
- At most `max_buffered` new requests wait; requests that come back are never refused.
"""

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic

from .....shared.errors import QueueFull
from .....shared.inference import PriorityClass
from ...decisions import LinkId, Refuse
from ...priority_queue import Groups
from ...queue_full import Wait, refusal_of
from ...routing.fetches import Fetching
from ...routing.policies.cost import LeastCost
from ...routing.policy import Choice, Load, RoutingPolicy
from ...routing.rates import Measurement
from ...tally import Tally
from ..dispatched import Dispatched
from ..eligibility import (
    NOTHING,
    Able,
    Alone,
    ByText,
    Engine,
    Offer,
    QueueKey,
    Warm,
    agents_of,
    model_of,
)
from ..request import D
from .fair_queue import FairQueue
from .load_shedding import LoadShedding


@dataclass(slots=True)
class AgentSlots(Generic[D]):
    """The slots of one agent.

    `keys` are the queues that the agent serves; `turn` is greatest for the agent that got a
    request last.

    An agent that runs the request `isolated` gets no other request. `tried` are requests that were
    isolated on the agent earlier. The requests in `held` wait for this agent only. An agent that
    is `emptied_for` a request gets no other request until that request starts.
    """

    link: LinkId
    offer: Offer = NOTHING
    keys: tuple[QueueKey, ...] = ()
    is_full: bool = False
    turn: int = 0
    running: set[D] = field(default_factory=set)
    isolated: D | None = None
    tried: set[D] = field(default_factory=set)
    held: set[D] = field(default_factory=set)
    emptied_for: D | None = None

    @property
    def has_free_slot(self) -> bool:
        """Whether the agent would start another request."""
        offer = self.offer
        most = min(offer.slots, offer.allowed)
        is_open = not self.is_full and self.isolated not in self.running
        if self.emptied_for is not None and not self.is_apart:
            return False
        return offer.is_able and is_open and len(self.running) < most

    @property
    def is_apart(self) -> bool:
        """Whether the agent runs only an isolated request."""
        return self.running <= self.tried

    def serves(self, key: QueueKey) -> bool:
        """Return whether the agent takes requests of this queue when it has a free slot."""
        return self.offer.is_able and agents_of(key) in self.keys


class FleetSlots(Generic[D]):
    """The slots of all agents by link, in the order in which the agents joined.

    A slot here is a reservation; an agent may still answer that it is full.

    Invariants: `num_slots` and the totals for each model are sums over the connected agents; an
    agent is ranked exactly when it has a free slot.
    """

    __slots__ = ("_agents", "_num_turns", "_totals", "num_slots", "num_taken")

    def __init__(self) -> None:
        self._agents: dict[LinkId, AgentSlots[D]] = {}
        self._totals: Tally[QueueKey] = Tally()
        """The number of slots, taken or free, of the available agents, by their queues."""
        self._num_turns = 0
        self.num_slots = 0
        self.num_taken = 0
        """The number of slots that requests have."""

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[AgentSlots[D]]:
        return iter(self._agents.values())

    def __contains__(self, link: object) -> bool:
        return link in self._agents

    def __getitem__(self, link: LinkId) -> AgentSlots[D]:
        return self._agents[link]

    @property
    def served(self) -> Collection[QueueKey]:
        """The keys of the queues that agents serve now."""
        return self._totals

    def num_for(self, key: QueueKey) -> int:
        """Return the number of slots of the agents that take requests of this queue."""
        return self._totals[agents_of(key)]

    def add(self, link: LinkId) -> None:
        """Add an agent, which offers no slots yet."""
        if link in self._agents:
            raise ValueError(f"link {link} has joined already")
        self._agents[link] = AgentSlots(link)

    def offers(self, agent: AgentSlots[D], offer: Offer) -> None:
        """Replace the agent's offer."""
        self._count(agent, -1)
        agent.offer, agent.keys = offer, offer.keys
        self._count(agent, 1)

    def remove(self, link: LinkId) -> None:
        """Remove an agent."""
        self._count(self._agents.pop(link), -1)

    def take(self, agent: AgentSlots[D], request: D) -> None:
        """Give a slot of the agent to a request."""
        self._num_turns += 1
        self.num_taken += 1
        request.slot = agent.link
        agent.running.add(request)
        agent.turn = self._num_turns

    def free(self, agent: AgentSlots[D], request: D) -> None:
        """Free the slot of the agent that the request has."""
        self.num_taken -= 1
        request.slot = None
        agent.running.remove(request)

    def _count(self, agent: AgentSlots[D], sign: int) -> None:
        """Add the agent to the totals, or subtract it."""
        self.num_slots += sign * agent.offer.slots
        if agent.offer.is_able:
            for key in agent.keys:
                self._totals.add(key, sign * agent.offer.slots)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if self.num_slots != sum(agent.offer.slots for agent in self):
            raise RuntimeError("slots are miscounted")
        running = [(each.slot, agent.link) for agent in self for each in agent.running]
        if self.num_taken != len(running) or any(slot != link for slot, link in running):
            raise RuntimeError("requests and their agents disagree")
        held = [(each.held_for, agent.link) for agent in self for each in agent.held]
        if any(held_for != link for held_for, link in held):
            raise RuntimeError("a request is held for another agent")
        emptied = [(each.emptied_for.emptied, each.link) for each in self if each.emptied_for]
        if any(link != agent for link, agent in emptied):
            raise RuntimeError("an agent is emptied for a request that has another, or none")
        for key in {*self._totals, *(key for agent in self for key in agent.keys)}:
            if self._totals[key] != sum(each.offer.slots for each in self if each.serves(key)):
                raise RuntimeError(f"the slots for {key} are miscounted")


def _order(agent: AgentSlots[D]) -> tuple[int, int]:
    return len(agent.running), agent.turn


MENDED_TOGETHER = 8
"""Maximum outdated ranks that are updated when a request leaves an agent."""


class Ranks(Generic[D]):
    """The order in which agents with free slots get requests: cheapest first.

    Of agents that cost the same, the one that waited longest is first.

    A changed agent is ranked again only when the first agent of a queue is asked for, because one
    frame may change an agent many times. A new measurement of a speed outdates all ranks. Outdated
    ranks are updated a few at a time, oldest first, so that no request waits for thousands of
    updates. In a busy fleet most agents change before their turn comes.
    """

    __slots__ = ("_changed", "_edition", "_editions", "_free", "_keys", "_router", "_slots")

    def __init__(self, router: RoutingPolicy, slots: FleetSlots[D]) -> None:
        self._router = router
        self._slots = slots
        self._free: Groups[QueueKey, LinkId, tuple[float, int]] = Groups()
        """Agents with free slots, by the queues that they serve."""
        self._keys: dict[LinkId, tuple[QueueKey, ...]] = {}
        """The queues under which each of these agents is ranked."""
        self._edition = 0
        """The number of times that all ranks were outdated."""
        self._editions: OrderedDict[LinkId, int] = OrderedDict()
        """The edition of each agent's rank; agents that changed longest ago come first."""
        self._changed: dict[LinkId, AgentSlots[D]] = {}
        """Agents that need a new rank."""

    def first(self, key: QueueKey) -> LinkId | None:
        """Return the agent with a free slot that gets the next request of this queue."""
        if not isinstance(key, Alone):
            self._rank_changed()
            first = self._free.first(key)
            return None if first is None else first[1]
        apart = [each for each in self._slots if each.is_apart and each.has_free_slot]
        found = min((each for each in apart if each.serves(key)), key=_order, default=None)
        return None if found is None else found.link

    def update(self, agent: AgentSlots[D]) -> None:
        """Rank the agent again, because its slots or its known speed have changed."""
        self._editions[agent.link] = self._edition
        self._editions.move_to_end(agent.link)
        self._changed[agent.link] = agent

    def _rank_changed(self) -> None:
        for agent in self._changed.values():
            keys = agent.keys if agent.has_free_slot else ()
            if self._keys.get(agent.link) != keys:
                self._discard(agent.link)
            if keys:
                load = self.load(agent, keys[0])
                rank = 0.0 if load is None else self._router.rank(agent.link, load)
                self._keys[agent.link] = keys
                for key in keys:
                    self._free.set(key, agent.link, (rank, agent.turn))
        self._changed.clear()

    def _discard(self, link: LinkId) -> None:
        for key in self._keys.pop(link, ()):
            self._free.remove(key, link)

    def remove(self, link: LinkId) -> None:
        """Remove an agent."""
        self._changed.pop(link, None)
        self._discard(link)
        self._editions.pop(link, None)

    def outdate(self) -> None:
        """Mark all ranks as outdated."""
        self._edition += 1

    def mend(self) -> None:
        """Update some of the outdated ranks."""
        for _ in range(MENDED_TOGETHER):
            link = next(iter(self._editions), None)
            if link is None or self._editions[link] == self._edition:
                return
            self.update(self._slots[link])

    def load(self, agent: AgentSlots[D], key: QueueKey) -> Load | None:
        """Return an agent's load for this queue.

        Returns `None` if it does not take requests of this queue, or is not worth waiting for.
        """
        if not agent.serves(key) or not agent.offer.allowed:
            return None
        return Load(
            running=len(agent.running),
            slots=agent.offer.slots,
            has_free_slot=agent.has_free_slot,
            waiting=len(agent.held),
        )

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._rank_changed()
        self._free.check_integrity()
        if list(self._editions.values()) != sorted(self._editions.values()):
            raise RuntimeError("ranks of older editions are not first")
        for agent in self._slots:
            keys = agent.keys if agent.has_free_slot else ()
            if self._keys.get(agent.link, ()) != keys:
                raise RuntimeError(f"{agent.link} is misplaced")
            if any(agent.link not in self._free.keys(key) for key in keys):
                raise RuntimeError(f"{agent.link} is misplaced")


MOST_PASSED = 16
"""Maximum consecutive requests that a free slot skips because other agents are best for them."""


@dataclass(frozen=True, slots=True)
class AssignSlot(Generic[D]):
    """Start the request on the agent, whose slot it takes.

    With `fetching` the agent fetches a prefix first.
    """

    request: D
    link: LinkId
    fetching: Fetching | None = None


@dataclass(frozen=True, slots=True)
class Hold(Generic[D]):
    """Let the request wait for one agent.

    Call `release` after this many seconds, unless the request has started.
    """

    request: D
    seconds: float


class Dispatch(Generic[D]):
    """The queue and the slots of all agents.

    Each event's method returns the assignments that became possible.

    Set `now` to the time of the event before the call; the share of starved classes needs it.
    """

    def __init__(self, max_buffered: int, router: RoutingPolicy | None = None) -> None:
        self._max_buffered = max_buffered
        self.router = LeastCost() if router is None else router
        self._waiting: FairQueue[D] = FairQueue()
        self._load_shedding: LoadShedding[D] = LoadShedding()
        self._slots: FleetSlots[D] = FleetSlots()
        self._ranks = Ranks(self.router, self._slots)
        self._holds: list[Hold[D]] = []
        """The holds since the last `take_holds`."""
        self._opened: list[AgentSlots[D]] = []
        """Agents that are no longer emptied, and may get requests again."""
        self._num_arrived = 0
        self.now = 0.0

    # ---- what is seen

    @property
    def num_agents(self) -> int:
        """The number of connected agents, including agents that take no requests."""
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """The number of all agents' slots, taken or free."""
        return self._slots.num_slots

    @property
    def waiting(self) -> Iterable[D]:
        """The requests without a slot, in no order."""
        return self._waiting

    @property
    def num_waiting(self) -> int:
        """The number of requests without a slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """The number of taken slots."""
        return self._slots.num_taken

    @property
    def is_ready(self) -> bool:
        """Whether an agent that takes requests has a slot, free or not."""
        return None in self._slots.served

    def running_on(self, link: LinkId) -> list[D]:
        """The requests of an agent, first arrived first."""
        return sorted(self._slots[link].running)

    def num_running_on(self, link: LinkId) -> int:
        """Return the number of taken slots of an agent."""
        return len(self._slots[link].running)

    def stranded(self) -> list[D]:
        """Return the waiting requests that no connected agent will be able to take."""
        return self._waiting.stranded(self._slots.served)

    def has_free_slot(self, key: QueueKey) -> bool:
        """Return whether a new request in this queue would start at once."""
        return self._ranks.first(key) is not None

    def has_free_slot_besides(self, link: LinkId, key: QueueKey) -> bool:
        """Return whether an agent other than `link` would start a new request in this queue at
        once.
        """
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
        """Return the number of slots of the agents that take requests of this queue."""
        return self._slots.num_for(key)

    def place_of(self, request: D) -> int:
        """Return the place of a waiting request in the queue; the first place is 1."""
        return self._waiting.place(request, self._slots.served)

    def num_waiting_of(self, kind: PriorityClass) -> int:
        """Return the number of requests of a priority class that have no slot."""
        return self._waiting.num_of(kind)

    @property
    def num_callers(self) -> int:
        """The number of callers with waiting requests that no agent has had yet."""
        return self._load_shedding.num_callers

    # ---- requests

    def enqueue(self, request: D) -> list[AssignSlot[D]] | Refuse:
        """Add a new request: assign it, let it wait, or refuse it if the queue is full.

        The list is empty if the request waits.
        """
        assigned = self.resume(request)
        if request.slot is None and request.held_for is None:
            if (error := self._refusal(request)) is not None:
                self.ended(request)
                return Refuse(request.id, error)
            self._load_shedding.waits(request)
        return assigned

    def resume(self, request: D) -> list[AssignSlot[D]]:
        """Add a request that was accepted earlier. Unlike in `enqueue`, a full queue does not
        refuse it.
        """
        if request.arrival:
            raise ValueError(f"request {request.id} is here already")
        self._num_arrived += 1
        request.arrival = self._num_arrived
        self._waiting.arrived(request, self.now)
        return self._place([request])

    def _refusal(self, request: D) -> QueueFull | None:
        """Return the error for a new request that would make the queue too long, or `None`."""
        num_before = self.num_waiting - 1
        if num_before < self._max_buffered:
            return None  # its place is not asked for
        position = self.place_of(request) if self._max_buffered else None
        return refusal_of(Wait(num_before=num_before, most=self._max_buffered, position=position))

    def makes_room_for(self, request: D) -> D | None:
        """Return the request that a full queue drops for a new request, or `None`.

        End the returned request before `enqueue`.
        """
        is_full = 0 < self._max_buffered <= self.num_waiting
        if not is_full or self.has_free_slot(request.queue_key):
            return None
        return self._load_shedding.yields_to(request)

    def ended(
        self, request: D, end: Measurement | None = None, *, charge: int | None = None
    ) -> list[AssignSlot[D]]:
        """Remove a request that has ended, and give its slot to the next request.

        `end` has the measurements of a request that ended well. `charge` is the cost of the
        request to its caller's share, if known.
        """
        self._unhold(request)
        self._load_shedding.leaves(request)
        self._waiting.ended(request, request.expected_charge if charge is None else charge)
        self._stop_emptying(request)
        if request.slot is None:
            return self._fill_opened()
        agent = self._leaves_slot(request, end)
        agent.is_full = False
        return self._fill(agent)

    def prompt_read(self, request: D, num_tokens: int, num_cached: int) -> None:
        """Record that an agent has computed the prompt of a request that it runs."""
        self.router.prompt_read(request.id, num_tokens, num_cached)
        self._ranks.update(self._slots[_slot_of(request)])

    def release(self, request: D) -> list[AssignSlot[D]]:
        """Stop holding a request for one agent: any agent may take it now."""
        return self._place([request]) if self._release(request) else []

    def came_back(self, request: D) -> list[AssignSlot[D]]:
        """Return a request to the queue that its agent refused to start.

        The agent counts as full until `agent_rested`, or until one of its requests ends.
        """
        self.agent_rests(self._leaves_slot(request).link)
        self._waits_again(request)
        return self._place([request])

    def gave_way(self, request: D) -> list[AssignSlot[D]]:
        """Return a request to the queue after its agent stopped it as asked.

        The freed slot is given to the next request.
        """
        agent = self._leaves_slot(request)
        self._waits_again(request)
        return [*self._fill(agent), *self.retry([request])]

    def bind(self, request: D, engine: Engine) -> None:
        """Bind a running request to `engine`: only agents with this engine can continue it."""
        _slot_of(request)
        request.bound_to = engine

    def isolate(self, request: D) -> None:
        """Let only an agent without other requests take this running request when it moves.

        Requests that were isolated on the agent earlier do not count as other requests.
        """
        _slot_of(request)
        request.is_isolated = True

    def empty_for(self, request: D) -> list[AssignSlot[D]]:
        """Reserve an agent for a waiting isolated request: it gets no other until this one starts.

        At most one agent per model is reserved at a time: the agent with the fewest requests. If
        the reserved agent no longer serves the model, another agent is chosen.
        """
        serving = {each.link: each for each in self._slots if each.serves(request.queue_key)}
        if request.emptied not in serving:
            self._stop_emptying(request)
        if not serving or any(each.emptied_for is not None for each in serving.values()):
            return self._fill_opened()
        agent = min(serving.values(), key=lambda each: len(each.running))
        agent.emptied_for, request.emptied = request, agent.link
        self._ranks.update(agent)
        return [*self._fill_opened(), *self.retry(self._let_go(agent.link))]

    def end_isolation(self, request: D) -> list[AssignSlot[D]]:
        """Let a waiting isolated request start beside others."""
        request.is_isolated = False
        self._waiting.changed(request, request.queue_key, self.now)
        return self._place([request])

    def _stop_emptying(self, request: D) -> None:
        """Stop reserving an agent for the request.

        `_fill_opened` then gives requests to the agent again.
        """
        if request.emptied is None:
            return
        agent = self._slots[request.emptied]
        agent.emptied_for = request.emptied = None
        self._ranks.update(agent)
        self._opened.append(agent)

    def _fill_opened(self) -> list[AssignSlot[D]]:
        assigned = []
        while self._opened:
            assigned += self._fill(self._opened.pop())
        return assigned

    def began(self, link: LinkId) -> list[AssignSlot[D]]:
        """Note that an answer has begun on an agent, which ends the isolation of its request."""
        agent = self._slots[link]
        if agent.isolated is None or agent.isolated not in agent.running:
            return []
        agent.isolated.is_isolated = False
        agent.tried = agent.tried & agent.running | {agent.isolated}
        agent.isolated = None
        return self._fill(agent)

    def goes_on_by_text(self, request: D, by_text: ByText) -> None:
        """Let only agents take the request that can continue the answer from its text.

        If the request waits, call `retry` next.
        """
        request.bound_to = None
        self.narrow(request, by_text)

    def serves(self, key: QueueKey, *, besides: LinkId | None = None) -> bool:
        """Return whether an agent other than the leaving agent `besides` takes requests of this
        queue.
        """
        num_slots = self._slots.num_for(key)
        if besides is not None and (agent := self._slots[besides]).serves(key):
            num_slots -= agent.offer.slots
        return num_slots > 0

    def following(self, names: Container[str | None]) -> list[D]:
        """Return the requests that wait for one of these model names, in order of arrival."""
        return sorted(each for each in self._waiting if _follows(each, names))

    def renamed(self, requests: Iterable[D]) -> list[AssignSlot[D]]:
        """Move requests that `following` returned to the queue of their model's new name."""
        for request in requests:
            self._unhold(request)
            self._stop_emptying(request)
            self._waiting.renamed(request, request.queue_key, self.now)
        return self._place(requests)

    def narrow(self, request: D, able: Able | ByText) -> None:
        """Let only agents with these abilities take the request.

        If the request waits, call `retry` next.
        """
        self._release(request)
        request.able = able
        if request.slot is None:
            self._waiting.changed(request, request.queue_key, self.now)

    def retry(self, requests: Iterable[D]) -> list[AssignSlot[D]]:
        """Assign waiting requests among `requests` for which an agent is free."""
        assigned = []
        for request in requests:
            if request.slot is None:
                assigned += self._place([request])
        return assigned

    def has_agent(self, link: LinkId) -> bool:
        """Return whether the agent is connected."""
        return link in self._slots

    # ---- agents

    def agent_joined(self, link: LinkId, offer: Offer) -> list[AssignSlot[D]]:
        """Add an agent with its offer."""
        self._slots.add(link)
        return self.agent_changed(link, offer)

    def agent_changed(self, link: LinkId, offer: Offer) -> list[AssignSlot[D]]:
        """Replace an agent's offer. The agent keeps its running requests."""
        agent = self._slots[link]
        is_same = offer.is_able and offer.keys == agent.keys
        self._slots.offers(agent, offer)
        agent.is_full = False
        self.router.agent_is(link, offer.model, offer.cache_tokens, offer.peer, offer.home)
        released = [] if is_same else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_allowed(self, link: LinkId, num: int) -> list[AssignSlot[D]]:
        """Limit how many requests the agent may have at once."""
        agent = self._slots[link]
        agent.offer = replace(agent.offer, allowed=num)
        released = [] if num else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_offers(self, link: LinkId, offer: Offer) -> None:
        """Replace an agent's offer, and start nothing.

        The agent will leave in a moment, or only abilities changed that no waiting request needs.
        Requests that are held for the agent keep waiting for it.
        """
        agent = self._slots[link]
        self._slots.offers(agent, offer)
        self._ranks.update(agent)

    def agent_rests(self, link: LinkId) -> None:
        """Count an agent as full until `agent_rested`, or until one of its requests ends."""
        agent = self._slots[link]
        agent.is_full = True
        self._ranks.update(agent)

    def agent_rested(self, link: LinkId) -> list[AssignSlot[D]]:
        """Try an agent again that counted as full."""
        agent = self._slots[link]
        agent.is_full = False
        return self._fill(agent)

    def agent_left(self, link: LinkId, ended: Collection[D]) -> list[AssignSlot[D]]:
        """Remove an agent. Its requests in `ended` have ended; the others return to the queue."""
        running = self.running_on(link)
        for request in running:
            self._leaves_slot(request)
        released = self._let_go(link)
        if (isolated := self._slots[link].emptied_for) is not None:
            isolated.emptied = None
        self._slots.remove(link)
        self._ranks.remove(link)
        for request in ended:
            self._waiting.ended(request, request.expected_charge)
        back = [request for request in running if request not in ended]
        for request in back:
            self._waits_again(request)
        self.router.agent_left(link)
        return self._place(sorted([*back, *released], key=lambda e: (e.is_isolated, e.arrival)))

    # ---- a slot for a request

    def _place(self, requests: Iterable[D]) -> list[AssignSlot[D]]:
        """Assign those of the waiting `requests` for which an agent is free, in this order.

        All other waiting requests have no free agent (an invariant of `dispatch`), so no request
        is overtaken.
        """
        assigned = []
        for request in requests:
            choice = self._choose(request)
            if choice is not None and choice.patience:
                self._hold(request, choice)
            elif choice is not None:
                agent = self._slots[choice.link]
                assigned.append(self._assign(request, agent, choice.fetching))
        return [*assigned, *self._fill_opened()]

    def _choose(self, request: D) -> Choice | None:
        key = request.queue_key
        free = self._ranks.first(key)
        if request.is_isolated or free is None:
            return None if free is None else Choice(free)
        return self.router.choose(
            request.chain,
            load_of=lambda link: self._ranks.load(self._slots[link], key),
            free=free,
            cache_key=request.cache_key,
            most_answer=request.most_answer,
            may_wait=not request.was_held and self.num_waiting <= self._max_buffered,
        )

    def _assign(
        self, request: D, agent: AgentSlots[D], fetching: Fetching | None = None
    ) -> AssignSlot[D]:
        self._load_shedding.leaves(request)
        self._waiting.started(request, self._keys_of(agent), self.now)
        self._unhold(request)
        self.router.started(
            request.id,
            agent.link,
            request.chain,
            cache_key=request.cache_key,
            account=request.account,
            waited_for=request.waited_for,
            fetching=fetching,
        )
        if request.waited_for is not None:
            request.waited_for = None
        self._stop_emptying(request)
        self._slots.take(agent, request)
        agent.isolated = request if request.is_isolated else None
        self._ranks.update(agent)
        return AssignSlot(request, agent.link, fetching)

    # ---- a request for a slot

    def _fill(self, agent: AgentSlots[D]) -> list[AssignSlot[D]]:
        """Give the agent's free slots to waiting requests, in their order."""
        assigned = []
        num_passed = 0
        self._ranks.update(agent)
        while agent.has_free_slot and (request := self._next_for(agent)) is not None:
            choice = self._choose(request) if num_passed < MOST_PASSED else None
            if choice is not None and choice.patience:
                num_passed += 1
                self._hold(request, choice)
            else:
                best = agent if choice is None else self._slots[choice.link]
                fetching = None if choice is None else choice.fetching
                assigned.append(self._assign(request, best, fetching))
        return [*assigned, *self._fill_opened()]

    def _next_for(self, agent: AgentSlots[D]) -> D | None:
        if self._waiting.alone and agent.is_apart:
            served = [key for key in self._waiting.alone if agent.serves(key)]
            if (request := self._waiting.first(served, self.now)) is not None:
                return request
        return self._waiting.first(self._keys_of(agent), self.now)

    def _keys_of(self, agent: AgentSlots[D]) -> tuple[QueueKey, ...]:
        """Return the keys of the queues whose requests the agent could start."""
        if not agent.held:
            return agent.keys
        return (*agent.keys, *(Warm(name, agent.link) for name in agent.offer.names))

    # ---- requests that are held, or have to wait again

    def take_holds(self) -> list[Hold[D]]:
        """Return the requests that were held since the last call; some may have ended."""
        new, self._holds = self._holds, []
        return new

    def _hold(self, request: D, choice: Choice) -> None:
        """Let the request wait for this agent only. A request is held at most once."""
        request.was_held = True
        request.held_for = request.waited_for = choice.link
        self._slots[choice.link].held.add(request)
        self._holds.append(Hold(request, choice.patience))
        self._waiting.changed(request, Warm(model_of(request.queue_key), choice.link), self.now)

    def _unhold(self, request: D) -> bool:
        """Stop holding a request. Returns whether it was held."""
        if request.held_for is None:
            return False
        self._slots[request.held_for].held.remove(request)
        request.held_for = None
        return True

    def _release(self, request: D) -> bool:
        """Stop holding a request for one agent. Returns whether it was held."""
        if not self._unhold(request):
            return False
        self._waiting.changed(request, request.queue_key, self.now)
        return True

    def _let_go(self, link: LinkId) -> list[D]:
        """Stop holding requests for an agent, and return them in order of arrival."""
        held = sorted(self._slots[link].held)
        for request in held:
            self._release(request)
        return held

    def _leaves_slot(self, request: D, end: Measurement | None = None) -> AgentSlots[D]:
        """Free the slot of a request. Its measurements may change the ranks of agents."""
        agent = self._slots[_slot_of(request)]
        self._slots.free(agent, request)
        if self.router.ended(request.id, end):
            self._ranks.outdate()
        self._ranks.mend()
        return agent

    def _waits_again(self, request: D) -> None:
        self._waiting.came_back(request, request.queue_key, self.now)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.router.check_integrity()
        self._waiting.check_integrity()
        self._load_shedding.check_integrity(self._waiting)
        self._slots.check_integrity()
        self._ranks.check_integrity()
        waiting = set(self._waiting)
        _require(all(each.slot is None for each in waiting), "a request waits that has a slot")
        for agent in self._slots:
            is_idle = not agent.has_free_slot or self._next_for(agent) is None
            _require(is_idle, f"a request waits for {agent.link} in vain")
            _require(agent.held <= waiting, "a held request does not wait")


def _follows(request: Dispatched, names: Container[str | None]) -> bool:
    """Return whether the request waits for a model in `names`, for any or for certain agents."""
    is_for_some = isinstance(request.waits_for, Engine | Able | ByText)
    return not is_for_some and model_of(request.queue_key) in names


def _slot_of(request: Dispatched) -> LinkId:
    if request.slot is None:
        raise ValueError(f"request {request.id} is not running")
    return request.slot


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
