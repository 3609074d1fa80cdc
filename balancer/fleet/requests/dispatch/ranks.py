"""The order in which agents with free slots get requests: the cheapest first.

Each change of an agent updates its own rank. What is learnt of speeds outdates all ranks; these are
mended a few at a time, those first that were ranked longest ago, so that no request pays for
thousands of agents. Of a busy fleet most agents have changed before it is their turn.

Invariant: an agent is ranked exactly when it has a free slot.
"""

from collections import OrderedDict

from ...decisions import LinkId
from ...routing.cost import Load
from ...routing.router import Router
from ..matching import Free
from ..routing import Wanted
from .holds import Holds
from .slots import AgentSlots, Slots

MENDED_TOGETHER = 8
"""Outdated ranks that are mended at most with each request that leaves an agent."""


class Ranks:
    """Reads what `slots` and `holds` say of an agent when it is told of a change there."""

    __slots__ = ("_edition", "_editions", "_free", "_holds", "_router", "_slots")

    def __init__(self, router: Router, slots: Slots, holds: Holds) -> None:
        self._router = router
        self._slots = slots
        self._holds = holds
        self._free = Free()
        self._edition = 0
        """How often all ranks were outdated."""
        self._editions: OrderedDict[LinkId, int] = OrderedDict()
        """Of which edition each agent's rank is; those that changed longest ago first."""

    def first(self, wanted: Wanted) -> LinkId | None:
        """The agent with a free slot that gets the next request which wants this."""
        return self._free.first(wanted)

    def update(self, agent: AgentSlots) -> None:
        """The agent's slots, or what is known of its speed, have changed."""
        self._editions[agent.link] = self._edition
        self._editions.move_to_end(agent.link)
        if agent.has_free_slot:
            load = self.load(agent, agent.keys[0])
            rank = 0.0 if load is None else self._router.rank(agent.link, load)
            self._free.put(agent.link, agent.keys, rank, agent.turn)
        else:
            self._free.discard(agent.link)

    def remove(self, link: LinkId) -> None:
        """An agent is gone."""
        self._free.discard(link)
        self._editions.pop(link, None)

    def outdate(self) -> None:
        """What was learnt may change how all agents rank."""
        self._edition += 1

    def mend(self) -> None:
        """Update some of the outdated ranks."""
        for _ in range(MENDED_TOGETHER):
            link = next(iter(self._editions), None)
            if link is None or self._editions[link] == self._edition:
                return
            self.update(self._slots[link])

    def load(self, agent: AgentSlots, wanted: Wanted) -> Load | None:
        """How an agent is, if it takes those who want this and is worth waiting for."""
        if not agent.serves(wanted) or not agent.offer.allowed:
            return None
        return Load(
            running=len(agent.running),
            slots=agent.offer.slots,
            has_free_slot=agent.has_free_slot,
            waiting=len(self._holds.held_for(agent.link)),
        )

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._free.check_integrity()
        if list(self._editions.values()) != sorted(self._editions.values()):
            raise RuntimeError("ranks of older editions are not first")
        for agent in self._slots:
            if (agent.link in self._free) != agent.has_free_slot:
                raise RuntimeError(f"{agent.link} is misplaced")
