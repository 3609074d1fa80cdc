"""The slots of all agents: which requests have them, and how many there are for each model.

A slot here is a reservation: the agent has the last word and may still answer that it is full.

Invariant: `num_slots` and the totals for each model are sums over the agents that are here.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from .....shared.inference import RequestId
from ...decisions import LinkId
from ...tally import Tally
from ..routing import NOTHING, Offer, Wanted


@dataclass(slots=True)
class AgentSlots:
    """`keys` are those of its offer. `turn` is greatest for the agent that got a request last."""

    link: LinkId
    offer: Offer = NOTHING
    keys: tuple[Wanted, ...] = ()
    is_full: bool = False
    turn: int = 0
    running: set[RequestId] = field(default_factory=set)

    @property
    def has_free_slot(self) -> bool:
        """Whether it would start one more."""
        offer = self.offer
        most = min(offer.slots, offer.allowed)
        return offer.is_able and not self.is_full and len(self.running) < most

    def serves(self, wanted: Wanted) -> bool:
        """Whether it takes those who want this, now or when a slot is free."""
        return self.offer.is_able and wanted in self.keys


class Slots:
    """Agents by their links, in the order in which they joined."""

    __slots__ = ("_agents", "_num_taken", "_totals", "num_slots")

    def __init__(self) -> None:
        self._agents: dict[LinkId, AgentSlots] = {}
        self._totals: Tally[Wanted] = Tally()
        """Slots of agents that take work, taken or not, by what these serve."""
        self._num_taken = 0
        self.num_slots = 0

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[AgentSlots]:
        return iter(self._agents.values())

    def __contains__(self, link: object) -> bool:
        return link in self._agents

    def __getitem__(self, link: LinkId) -> AgentSlots:
        return self._agents[link]

    @property
    def served(self) -> Collection[Wanted]:
        """What agents that take work serve."""
        return self._totals

    def num_for(self, wanted: Wanted) -> int:
        """The slots of agents that take requests which want this; 0 if none does."""
        return self._totals[wanted]

    def add(self, link: LinkId) -> None:
        """An agent is here; it offers nothing yet."""
        if link in self._agents:
            raise ValueError(f"link {link} has joined already")
        self._agents[link] = AgentSlots(link)

    def offers(self, agent: AgentSlots, offer: Offer) -> None:
        """What the agent can be given from now on."""
        self._count(agent, -1)
        agent.offer, agent.keys = offer, offer.keys
        self._count(agent, 1)

    def remove(self, link: LinkId) -> None:
        """An agent is gone."""
        self._count(self._agents.pop(link), -1)

    def take(self, agent: AgentSlots, id: RequestId) -> None:
        """A request has a slot of the agent."""
        self._num_taken += 1
        agent.running.add(id)
        agent.turn = self._num_taken

    def _count(self, agent: AgentSlots, sign: int) -> None:
        """Put the agent into the totals, or take it out."""
        self.num_slots += sign * agent.offer.slots
        if agent.offer.is_able:
            for key in agent.keys:
                self._totals.add(key, sign * agent.offer.slots)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if self.num_slots != sum(agent.offer.slots for agent in self):
            raise RuntimeError("slots are miscounted")
        for key in {*self._totals, *(key for agent in self for key in agent.keys)}:
            if self._totals[key] != sum(each.offer.slots for each in self if each.serves(key)):
                raise RuntimeError(f"the slots for {key} are miscounted")
