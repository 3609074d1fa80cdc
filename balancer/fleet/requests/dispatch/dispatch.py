"""Assigns requests to agents: each event of requests and agents is one method.

A request waits for its model or for any model. `fair_queue` decides which request is next, and
`routing` decides which agent is best for this request. A request that returns from an agent keeps
its place before later requests of its caller. A request that could start at once may be held for
an agent that has much of its prompt cached.

A decision costs O(log agents + log waiting), because free agents are sorted for each model. So
only the chosen agent is examined, and a few agents that have a prefix of the request.

Invariants:

- An agent never has more requests than its slots or its limit. If either falls, the agent gets no
  request until it has fewer requests.
- No request waits while an agent that could take it has a free slot. Two kinds are exceptions. A
  held request waits for one agent, once and for a limited time. An isolated request waits for an
  agent without other requests, and this agent gets none before the isolated answer begins. If an
  isolated request waits for long, one agent is reserved for it.
- Requests of one caller, class and model are assigned in order of arrival. A request whose answer
  has begun waits for the engine that began it: the model and its fingerprint. While a request is
  held, later requests may start on other agents.
- At most `max_buffered` new requests wait. Requests that return are never refused.
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

    - `keys`: the queues from which the agent takes requests.
    - `turn`: a number that is greatest for the agent that got a request last.
    - `isolated`: a request that runs alone, so that the agent gets no other request.
    - `tried`: the requests that ran isolated on this agent earlier.
    - `held`: the requests that wait for this agent only.
    - `emptied_for`: a request for which the agent is reserved until the request starts.
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
        """Whether the agent can start another request."""
        offer = self.offer
        most = min(offer.slots, offer.allowed)
        is_open = not self.is_full and self.isolated not in self.running
        if self.emptied_for is not None and not self.is_apart:
            return False
        return offer.is_able and is_open and len(self.running) < most

    @property
    def is_apart(self) -> bool:
        """Whether the agent runs no requests except requests that were isolated on it."""
        return self.running <= self.tried

    def serves(self, key: QueueKey) -> bool:
        """Return whether the agent takes requests of the queue `key`."""
        return self.offer.is_able and agents_of(key) in self.keys


class FleetSlots(Generic[D]):
    """The slots of all agents by link, in the order in which the agents joined.

    A slot here is a reservation, and the agent may still answer that it is full.

    Invariants: `num_slots` and the totals by model are sums over the connected agents; an agent is
    ranked exactly if it has a free slot.
    """

    __slots__ = ("_agents", "_num_turns", "_totals", "num_slots", "num_taken")

    def __init__(self) -> None:
        self._agents: dict[LinkId, AgentSlots[D]] = {}
        self._totals: Tally[QueueKey] = Tally()
        """The number of slots, taken or free, of available agents by queue."""
        self._num_turns = 0
        self.num_slots = 0
        self.num_taken = 0
        """The number of taken slots."""

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
        """The keys of the queues that an agent serves now."""
        return self._totals

    def num_for(self, key: QueueKey) -> int:
        """Return the number of slots of the agents that take requests of the queue `key`."""
        return self._totals[agents_of(key)]

    def add(self, link: LinkId) -> None:
        """Add an agent without slots."""
        if link in self._agents:
            raise ValueError(f"link {link} has joined already")
        self._agents[link] = AgentSlots(link)

    def offers(self, agent: AgentSlots[D], offer: Offer) -> None:
        """Replace the offer of an agent."""
        self._count(agent, -1)
        agent.offer, agent.keys = offer, offer.keys
        self._count(agent, 1)

    def remove(self, link: LinkId) -> None:
        """Remove an agent."""
        self._count(self._agents.pop(link), -1)

    def take(self, agent: AgentSlots[D], request: D) -> None:
        """Give a slot of `agent` to `request`."""
        self._num_turns += 1
        self.num_taken += 1
        request.slot = agent.link
        agent.running.add(request)
        agent.turn = self._num_turns

    def free(self, agent: AgentSlots[D], request: D) -> None:
        """Free the slot of `agent` that `request` has."""
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
"""The maximum number of outdated ranks that are computed when a request leaves an agent."""


class Ranks(Generic[D]):
    """The order in which agents with free slots get requests: the cheapest agent is first.

    Among agents with equal costs, the agent that waited longest is first.

    A frame may change an agent many times, so a changed agent is ranked only when the first agent
    of a queue is needed. A new measurement of a speed makes all ranks outdated. Outdated ranks are
    computed again a few at a time, oldest first, so that no request waits for thousands of
    computations.
    """

    __slots__ = ("_changed", "_edition", "_editions", "_free", "_keys", "_router", "_slots")

    def __init__(self, router: RoutingPolicy, slots: FleetSlots[D]) -> None:
        self._router = router
        self._slots = slots
        self._free: Groups[QueueKey, LinkId, tuple[float, int]] = Groups()
        """The agents with free slots, by the queues from which they take requests."""
        self._keys: dict[LinkId, tuple[QueueKey, ...]] = {}
        """The queues in which each agent is ranked."""
        self._edition = 0
        """The number of times that all ranks became outdated."""
        self._editions: OrderedDict[LinkId, int] = OrderedDict()
        """The edition in which each agent was ranked, oldest first."""
        self._changed: dict[LinkId, AgentSlots[D]] = {}
        """The agents that must be ranked again."""

    def first(self, key: QueueKey) -> LinkId | None:
        """Return the free agent that gets the next request of the queue `key`, or `None`."""
        if not isinstance(key, Alone):
            self._rank_changed()
            first = self._free.first(key)
            return None if first is None else first[1]
        apart = [each for each in self._slots if each.is_apart and each.has_free_slot]
        found = min((each for each in apart if each.serves(key)), key=_order, default=None)
        return None if found is None else found.link

    def update(self, agent: AgentSlots[D]) -> None:
        """Rank the agent again later, because its slots or its speed have changed."""
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
        """Compute some of the outdated ranks again."""
        for _ in range(MENDED_TOGETHER):
            link = next(iter(self._editions), None)
            if link is None or self._editions[link] == self._edition:
                return
            self.update(self._slots[link])

    def load(self, agent: AgentSlots[D], key: QueueKey) -> Load | None:
        """Return the load of an agent for requests of the queue `key`.

        Returns `None` if the agent does not take such requests, or no request should wait for it.
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
"""The maximum number of requests that a free slot skips because other agents suit them better."""


@dataclass(frozen=True, slots=True)
class AssignSlot(Generic[D]):
    """Start the request on the agent whose slot it now has.

    If `fetching` is given, the agent first fetches this prefix.
    """

    request: D
    link: LinkId
    fetching: Fetching | None = None


@dataclass(frozen=True, slots=True)
class Hold(Generic[D]):
    """Let the request wait for one agent.

    Call `release` after this many seconds unless the request has started.
    """

    request: D
    seconds: float


class Dispatch(Generic[D]):
    """The queue and the slots of all agents.

    Each event is a method that returns the assignments which became possible. Set `now` to the
    time of the event before each call.
    """

    def __init__(self, max_buffered: int, router: RoutingPolicy | None = None) -> None:
        self._max_buffered = max_buffered
        self.router = LeastCost() if router is None else router
        self._waiting: FairQueue[D] = FairQueue()
        self._load_shedding: LoadShedding[D] = LoadShedding()
        self._slots: FleetSlots[D] = FleetSlots()
        self._ranks = Ranks(self.router, self._slots)
        self._holds: list[Hold[D]] = []
        """The holds that began after the last call of `take_holds`."""
        self._opened: list[AgentSlots[D]] = []
        """Agents that are no longer reserved and may get requests again."""
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
        """Return the waiting requests that no connected agent can ever take."""
        return self._waiting.stranded(self._slots.served)

    def has_free_slot(self, key: QueueKey) -> bool:
        """Return whether a new request in the queue `key` would start at once."""
        return self._ranks.first(key) is not None

    def has_free_slot_besides(self, link: LinkId, key: QueueKey) -> bool:
        """Return whether an agent other than `link` would start a new request at once.

        The request would wait in the queue `key`.
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
        """Return the number of slots of the agents that take requests of the queue `key`."""
        return self._slots.num_for(key)

    def place_of(self, request: D) -> int:
        """Return the place of a waiting request in its queue, beginning with 1."""
        return self._waiting.place(request, self._slots.served)

    def num_waiting_of(self, kind: PriorityClass) -> int:
        """Return the number of requests of the class `kind` without a slot."""
        return self._waiting.num_of(kind)

    @property
    def num_callers(self) -> int:
        """The number of callers with waiting requests that have never had an agent."""
        return self._load_shedding.num_callers

    # ---- requests

    def enqueue(self, request: D) -> list[AssignSlot[D]] | Refuse:
        """Add a new request. Returns its assignment, or a refusal if the queue is full.

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
        """Add a request of an earlier run, even if the queue is full."""
        if request.arrival:
            raise ValueError(f"request {request.id} is here already")
        self._num_arrived += 1
        request.arrival = self._num_arrived
        self._waiting.arrived(request, self.now)
        return self._place([request])

    def _refusal(self, request: D) -> QueueFull | None:
        """Return the error for a new request if the queue is too long, or `None`."""
        num_before = self.num_waiting - 1
        if num_before < self._max_buffered:
            return None  # its place is not asked for
        position = self.place_of(request) if self._max_buffered else None
        return refusal_of(Wait(num_before=num_before, most=self._max_buffered, position=position))

    def makes_room_for(self, request: D) -> D | None:
        """Return the request that a full queue drops for the new request `request`, or `None`.

        End the returned request before `enqueue`.
        """
        is_full = 0 < self._max_buffered <= self.num_waiting
        if not is_full or self.has_free_slot(request.queue_key):
            return None
        return self._load_shedding.yields_to(request)

    def ended(
        self, request: D, end: Measurement | None = None, *, charge: int | None = None
    ) -> list[AssignSlot[D]]:
        """Remove a request that has ended, and give its slot to a waiting request.

        `end` is the measurement of a request without error. `charge` is the real cost of the
        request for its caller's share, if known.
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
        """Let any agent take a request that was held for one agent."""
        return self._place([request]) if self._release(request) else []

    def came_back(self, request: D) -> list[AssignSlot[D]]:
        """Return a request to the queue because its agent refused to start it.

        The agent counts as full until `agent_rested` or until one of its requests ends.
        """
        self.agent_rests(self._leaves_slot(request).link)
        self._waits_again(request)
        return self._place([request])

    def gave_way(self, request: D) -> list[AssignSlot[D]]:
        """Return a request to the queue after the balancer asked its agent to stop it.

        The free slot goes to a waiting request.
        """
        agent = self._leaves_slot(request)
        self._waits_again(request)
        return [*self._fill(agent), *self.retry([request])]

    def bind(self, request: D, engine: Engine) -> None:
        """Bind a running request to `engine`, because only this engine can continue the answer."""
        _slot_of(request)
        request.bound_to = engine

    def isolate(self, request: D) -> None:
        """Isolate a running request: after a move it runs on an agent without other requests.

        Requests that were isolated on this agent earlier do not count as other requests.
        """
        _slot_of(request)
        request.is_isolated = True

    def empty_for(self, request: D) -> list[AssignSlot[D]]:
        """Reserve an agent for a waiting isolated request; other requests do not start there.

        At most one agent for each model is reserved: the agent with the fewest requests. If the
        reserved agent no longer serves the model, another agent is reserved.
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
        """Let a waiting isolated request start on an agent with other requests."""
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
        """Record that an answer has begun on an agent. This ends the isolation of the request."""
        agent = self._slots[link]
        if agent.isolated is None or agent.isolated not in agent.running:
            return []
        agent.isolated.is_isolated = False
        agent.tried = agent.tried & agent.running | {agent.isolated}
        agent.isolated = None
        return self._fill(agent)

    def goes_on_by_text(self, request: D, by_text: ByText) -> None:
        """Let only agents that can continue the answer from its text take the request.

        If the request waits, the caller must then call `retry`.
        """
        request.bound_to = None
        self.narrow(request, by_text)

    def serves(self, key: QueueKey, *, besides: LinkId | None = None) -> bool:
        """Return whether an agent other than `besides` takes requests of the queue `key`.

        `besides` is about to leave.
        """
        num_slots = self._slots.num_for(key)
        if besides is not None and (agent := self._slots[besides]).serves(key):
            num_slots -= agent.offer.slots
        return num_slots > 0

    def following(self, names: Container[str | None]) -> list[D]:
        """Return the requests that wait for one of the models `names`, in order of arrival."""
        return sorted(each for each in self._waiting if _follows(each, names))

    def renamed(self, requests: Iterable[D]) -> list[AssignSlot[D]]:
        """Move requests that `following` returned to the queues of their models' new names."""
        for request in requests:
            self._unhold(request)
            self._stop_emptying(request)
            self._waiting.renamed(request, request.queue_key, self.now)
        return self._place(requests)

    def narrow(self, request: D, able: Able | ByText) -> None:
        """Let only agents with the abilities `able` take the request.

        If the request waits, the caller must then call `retry`.
        """
        self._release(request)
        request.able = able
        if request.slot is None:
            self._waiting.changed(request, request.queue_key, self.now)

    def retry(self, requests: Iterable[D]) -> list[AssignSlot[D]]:
        """Assign the waiting requests among `requests` that an agent can start now."""
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
        """Replace the offer of an agent. The agent keeps its running requests."""
        agent = self._slots[link]
        is_same = offer.is_able and offer.keys == agent.keys
        self._slots.offers(agent, offer)
        agent.is_full = False
        self.router.agent_is(link, offer.model, offer.cache_tokens, offer.peer, offer.home)
        released = [] if is_same else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_allowed(self, link: LinkId, num: int) -> list[AssignSlot[D]]:
        """Limit the number of requests that the agent may have at once to `num`."""
        agent = self._slots[link]
        agent.offer = replace(agent.offer, allowed=num)
        released = [] if num else self._let_go(link)
        return [*self._fill(agent), *self.retry(released)]

    def agent_offers(self, link: LinkId, offer: Offer) -> None:
        """Replace the offer of an agent without assigning requests.

        Use this method if the agent is about to leave, or if no waiting request needs the changed
        abilities. Held requests keep waiting for the agent.
        """
        agent = self._slots[link]
        self._slots.offers(agent, offer)
        self._ranks.update(agent)

    def agent_rests(self, link: LinkId) -> None:
        """Count an agent as full until `agent_rested` or until one of its requests ends."""
        agent = self._slots[link]
        agent.is_full = True
        self._ranks.update(agent)

    def agent_rested(self, link: LinkId) -> list[AssignSlot[D]]:
        """Give requests again to an agent that counted as full."""
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
        """Assign those of the waiting `requests` that an agent can start, in this order.

        No other waiting request has a free agent (an invariant), so no request is overtaken.
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
        """Give the free slots of an agent to waiting requests in their order."""
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
        """Return the queues whose requests the agent can start now."""
        if not agent.held:
            return agent.keys
        return (*agent.keys, *(Warm(name, agent.link) for name in agent.offer.names))

    # ---- requests that are held, or have to wait again

    def take_holds(self) -> list[Hold[D]]:
        """Return the holds since the last call. Some of their requests may have ended."""
        new, self._holds = self._holds, []
        return new

    def _hold(self, request: D, choice: Choice) -> None:
        """Let the request wait for the agent of `choice`. A request is held at most once."""
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
        """Stop holding requests for an agent. Returns these requests in order of arrival."""
        held = sorted(self._slots[link].held)
        for request in held:
            self._release(request)
        return held

    def _leaves_slot(self, request: D, end: Measurement | None = None) -> AgentSlots[D]:
        """Free the slot of a request, and use its measurement `end` for the ranks of agents."""
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
    """Return whether the request waits for a model in `names`, any model or certain agents."""
    is_for_some = isinstance(request.waits_for, Engine | Able | ByText)
    return not is_for_some and model_of(request.queue_key) in names


def _slot_of(request: Dispatched) -> LinkId:
    if request.slot is None:
        raise ValueError(f"request {request.id} is not running")
    return request.slot


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
