"""The slots of all agents: which requests have them, and which agent with a free slot is next.

A slot here is a reservation; an agent may still answer that it is full.

Invariants: `num_slots` and the totals for each model are sums over the connected agents; an agent
is ranked exactly when it has a free slot.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic

from ...decisions import LinkId
from ...priority_queue import Groups
from ...routing.choice import Load
from ...routing.policy import RoutingPolicy
from ...tally import Tally
from ..eligibility import NOTHING, Alone, Offer, QueueKey, agents_of
from ..request import D


@dataclass(slots=True)
class AgentSlots(Generic[D]):
    """The slots of one agent.

    `keys` are the queues that it serves; `turn` is greatest for the agent that got a request last.

    An agent that runs the request `isolated` gets no other. `tried` are requests that were isolated
    on the agent before. The requests in `held` wait for this agent only. An agent that is
    `emptied_for` a request gets no other request until that one starts.
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
        """Return whether the agent takes requests of this queue, now or once it has a free slot."""
        return self.offer.is_able and agents_of(key) in self.keys


class FleetSlots(Generic[D]):
    """The slots of all agents by link, in the order in which the agents joined."""

    __slots__ = ("_agents", "_num_turns", "_totals", "num_slots", "num_taken")

    def __init__(self) -> None:
        self._agents: dict[LinkId, AgentSlots[D]] = {}
        self._totals: Tally[QueueKey] = Tally()
        """Slots of agents that take work, taken or not, by what these serve."""
        self._num_turns = 0
        self.num_slots = 0
        self.num_taken = 0
        """Slots that requests have."""

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
        """The keys of the queues that working agents serve."""
        return self._totals

    def num_for(self, key: QueueKey) -> int:
        """Return the number of slots of the agents that take requests of this queue."""
        return self._totals[agents_of(key)]

    def add(self, link: LinkId) -> None:
        """Add an agent, which offers nothing yet."""
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
        """Take the slot of the agent away from a request."""
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
        """For tests: raise if an invariant does not hold."""
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


class Free:
    """Agents with free slots, lowest load first; of agents with the same load, the one that waited
    longest."""

    __slots__ = ("_groups", "_keys")

    def __init__(self) -> None:
        self._groups: Groups[QueueKey, LinkId, tuple[float, int]] = Groups()
        self._keys: dict[LinkId, tuple[QueueKey, ...]] = {}

    def __contains__(self, link: object) -> bool:
        return link in self._keys

    def put(self, link: LinkId, keys: tuple[QueueKey, ...], load: float, turn: int) -> None:
        """Add or update an agent that takes requests of `keys`.

        `turn` is greatest for the agent that got a request last.
        """
        if self._keys.get(link, keys) != keys:
            self.discard(link)
        self._keys[link] = keys
        for key in keys:
            self._groups.set(key, link, (load, turn))

    def discard(self, link: LinkId) -> None:
        """Remove an agent, if it has an entry."""
        for key in self._keys.pop(link, ()):
            self._groups.remove(key, link)

    def first(self, key: QueueKey) -> LinkId | None:
        """Return the agent that gets the next request of this queue."""
        first = self._groups.first(key)
        return first[1] if first else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._groups.check_integrity()
        for link, keys in self._keys.items():
            if any(link not in self._groups.keys(key) for key in keys):
                raise RuntimeError(f"{link} is misplaced")


def _order(agent: AgentSlots[D]) -> tuple[int, int]:
    return len(agent.running), agent.turn


MENDED_TOGETHER = 8
"""Outdated ranks that are mended at most with each request that leaves an agent."""


class Ranks(Generic[D]):
    """The order in which agents with free slots get requests: cheapest first.

    A changed agent is ranked again only when the first agent of a queue is asked for, because one
    frame may change an agent many times. A new measurement of a speed outdates all ranks. Outdated
    ranks are updated a few at a time, oldest first, so that no request waits for thousands of
    updates. In a busy fleet most agents change before their turn comes.
    """

    __slots__ = ("_changed", "_edition", "_editions", "_free", "_router", "_slots")

    def __init__(self, router: RoutingPolicy, slots: FleetSlots[D]) -> None:
        self._router = router
        self._slots = slots
        self._free = Free()
        self._edition = 0
        """How often all ranks were outdated."""
        self._editions: OrderedDict[LinkId, int] = OrderedDict()
        """The edition of each agent's rank; agents that changed longest ago come first."""
        self._changed: dict[LinkId, AgentSlots[D]] = {}
        """Agents that are to be ranked anew."""

    def first(self, key: QueueKey) -> LinkId | None:
        """Return the agent with a free slot that gets the next request of this queue."""
        if not isinstance(key, Alone):
            self._rank_changed()
            return self._free.first(key)
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
            if agent.has_free_slot:
                load = self.load(agent, agent.keys[0])
                rank = 0.0 if load is None else self._router.rank(agent.link, load)
                self._free.put(agent.link, agent.keys, rank, agent.turn)
            else:
                self._free.discard(agent.link)
        self._changed.clear()

    def remove(self, link: LinkId) -> None:
        """Remove an agent."""
        self._changed.pop(link, None)
        self._free.discard(link)
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
        """Return an agent's load.

        `None` if it does not take requests of this queue, or is not worth waiting for.
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
        """For tests: raise if an invariant does not hold."""
        self._rank_changed()
        self._free.check_integrity()
        if list(self._editions.values()) != sorted(self._editions.values()):
            raise RuntimeError("ranks of older editions are not first")
        for agent in self._slots:
            if (agent.link in self._free) != agent.has_free_slot:
                raise RuntimeError(f"{agent.link} is misplaced")
