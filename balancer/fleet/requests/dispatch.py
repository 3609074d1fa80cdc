"""Which request goes to which agent: the queue and the slots.

A slot here is a reservation: the agent has the last word and may still answer that it is full.
Requests wait in the order of their arrival, for their model or for any; one that comes back from
an agent keeps its place, which is before all that were never assigned.

Invariants:
- No agent is given more than the slots it reported; after a cut, nothing until it is below again.
- Nobody waits while an agent that could serve them has a free slot.
- Of those that ask for the same model, nobody is assigned before one that arrived earlier. One of
  which a part was answered asks for the engine that answered it: the model and its fingerprint.
- No more newcomers wait than `max_buffered`; those that come back are never turned away.

A decision costs O(log agents + log waiting): free agents are ranked by load, per model and all
together, so no agent is looked at that is not chosen.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ....shared.errors import QueueFull
from ....shared.inference import RequestId
from ..decisions import LinkId, Refuse
from ..tally import Tally
from .line import Line
from .matching import Free
from .routing import NOTHING, Engine, Offer, RoutingRequest, Wanted

RETRY_AFTER = 1.0
"""Seconds after which a client that found the queue full may try again, if no more is known."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Start the request on the agent; its slot is taken."""

    request: RequestId
    link: LinkId


@dataclass(slots=True)
class _Agent:
    """`keys` are those of its offer."""

    link: LinkId
    offer: Offer = NOTHING
    keys: tuple[Wanted, ...] = ()
    is_full: bool = False
    turn: int = 0
    running: set[RequestId] = field(default_factory=set)

    @property
    def has_free_slot(self) -> bool:
        return self.offer.is_able and not self.is_full and len(self.running) < self.offer.slots


@dataclass(slots=True)
class _Request:
    routing: RoutingRequest
    arrival: int
    link: LinkId | None = None


class Dispatch:
    """Knows no time. Every method returns the assignments that have become possible."""

    def __init__(self, max_buffered: int) -> None:
        self._max_buffered = max_buffered
        self._agents: dict[LinkId, _Agent] = {}
        self._requests: dict[RequestId, _Request] = {}
        self._waiting = Line()
        self._free = Free()
        self._able: Tally[Wanted] = Tally()
        """Slots of agents that take work, taken or not, by the model that these serve."""
        self._num_arrived = 0
        self._num_assigned = 0
        self.num_slots = 0

    @property
    def num_agents(self) -> int:
        """How many agents are here, whether they take work or not."""
        return len(self._agents)

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
        return None in self._able

    def running_on(self, link: LinkId) -> list[RequestId]:
        """The requests of an agent, first arrived first."""
        return sorted(self._agents[link].running, key=lambda id: self._requests[id].arrival)

    def num_running_on(self, link: LinkId) -> int:
        """How many of an agent's slots are taken."""
        return len(self._agents[link].running)

    def link_of(self, id: RequestId) -> LinkId | None:
        """The agent a request runs on, `None` while it waits."""
        return self._requests[id].link

    def stranded(self) -> list[RequestId]:
        """The waiting requests that no connected agent will ever take, as things are."""
        return self._waiting.stranded(self._able)

    def waiting(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that requests wait for: how many wait, and the first of them.

        A model may come again, for requests that wait for one of its engines.
        """
        return self._waiting.models()

    def has_free_slot(self, model: str | None) -> bool:
        """Whether a newcomer for `model` would start at once."""
        return self._free.first(model) is not None

    def num_slots_for(self, wanted: Wanted) -> int:
        """The slots of agents that take requests which want this; 0 if none does."""
        return self._able[wanted]

    def wanted_by(self, id: RequestId) -> Wanted:
        """What a request waits for, or would."""
        return self._requests[id].routing.wanted

    def place_of(self, id: RequestId) -> int:
        """The place of a waiting request, from 1: it is started after so many less one."""
        return self._waiting.place(id, self._able)

    # ---- requests

    def enqueue(self, id: RequestId, routing: RoutingRequest) -> list[Assign] | Refuse:
        """A newcomer is assigned, waits (no decision), or is refused and forgotten."""
        if id in self._requests:
            raise ValueError(f"request {id} is here already")
        if not self.has_free_slot(routing.model) and self.num_waiting >= self._max_buffered:
            return Refuse(id, self._queue_full(routing.model))
        self._num_arrived += 1
        self._requests[id] = _Request(routing, self._num_arrived)
        return self._place([id])

    def ended(self, id: RequestId) -> list[Assign]:
        """A request is over, wherever it was; its slot serves the next."""
        request = self._requests.pop(id)
        if request.link is None:
            self._waiting.remove(id)
            return []
        agent = self._agents[request.link]
        agent.running.remove(id)
        agent.is_full = False
        return self._fill(agent)

    def came_back(self, id: RequestId) -> list[Assign]:
        """The agent would not start it: it counts as full, until `agent_rested` or an end there."""
        agent = self._agents[self._running(id)]
        agent.running.remove(id)
        agent.is_full = True
        self._rank(agent)
        return self._place([id])

    def bind(self, id: RequestId, engine: Engine) -> None:
        """From now on only agents like this one may have the request, which runs on one."""
        self._running(id)
        request = self._requests[id]
        request.routing = replace(request.routing, engine=engine)

    def renamed(self, names: Mapping[str, str]) -> tuple[list[RequestId], list[Assign]]:
        """Who waits for a model of `names` waits for what it is called there; who that is."""
        waiting = [id for name in names for id in self._waiting.of(name)]
        ids = sorted(waiting, key=lambda id: self._requests[id].arrival)
        for id in ids:
            self._waiting.remove(id)
            request = self._requests[id]
            name = request.routing.model or ""
            request.routing = replace(request.routing, model=names.get(name, name))
        return ids, self._place(ids)

    # ---- agents

    def agent_joined(self, link: LinkId, offer: Offer) -> list[Assign]:
        """An agent is here."""
        if link in self._agents:
            raise ValueError(f"link {link} has joined already")
        self._agents[link] = _Agent(link)
        return self.agent_changed(link, offer)

    def agent_changed(self, link: LinkId, offer: Offer) -> list[Assign]:
        """What the agent says of itself has changed; what it runs, it goes on running."""
        agent = self._agents[link]
        self._count(agent, -1)
        agent.offer, agent.keys = offer, offer.keys
        agent.is_full = False
        self._count(agent, 1)
        return self._fill(agent)

    def agent_rested(self, link: LinkId) -> list[Assign]:
        """An agent that was full may be tried again."""
        agent = self._agents[link]
        agent.is_full = False
        return self._fill(agent)

    def agent_left(self, link: LinkId, ended: Collection[RequestId]) -> list[Assign]:
        """An agent is gone: of its requests, `ended` are over and the rest come back."""
        back = [id for id in self.running_on(link) if id not in ended]
        agent = self._agents.pop(link)
        self._free.discard(link)
        self._count(agent, -1)
        for id in ended:
            agent.running.remove(id)
            del self._requests[id]
        return self._place(back)

    # ---- inside

    def _place(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign or queue those that have no place, first arrived first.

        Whoever waits already has no free agent (the second invariant), so none is overtaken.
        """
        assigned = []
        for id in ids:
            request = self._requests[id]
            link = self._free.first(request.routing.wanted)
            if link is None:
                request.link = None
                self._waiting.put(id, request.routing.wanted, request.arrival)
            else:
                assigned.append(self._assign(id, self._agents[link]))
        return assigned

    def _fill(self, agent: _Agent) -> list[Assign]:
        """Give the agent's free slots to those who wait, first arrived first."""
        assigned = []
        while agent.has_free_slot and (id := self._next_for(agent)) is not None:
            self._waiting.remove(id)
            assigned.append(self._assign(id, agent))
        self._rank(agent)
        return assigned

    def _assign(self, id: RequestId, agent: _Agent) -> Assign:
        self._num_assigned += 1
        self._requests[id].link = agent.link
        agent.running.add(id)
        agent.turn = self._num_assigned
        self._rank(agent)
        return Assign(id, agent.link)

    def _next_for(self, agent: _Agent) -> RequestId | None:
        return self._waiting.first(agent.keys)

    def _running(self, id: RequestId) -> LinkId:
        link = self._requests[id].link
        if link is None:
            raise ValueError(f"request {id} is not running")
        return link

    def _rank(self, agent: _Agent) -> None:
        """Update the agent's place among the free agents."""
        if agent.has_free_slot:
            load = len(agent.running) / agent.offer.slots
            self._free.put(agent.link, agent.keys, load, agent.turn)
        else:
            self._free.discard(agent.link)

    def _count(self, agent: _Agent, sign: int) -> None:
        """Put the agent into the totals, or take it out."""
        self.num_slots += sign * agent.offer.slots
        if agent.offer.is_able:
            for key in agent.keys:
                self._able.add(key, sign * agent.offer.slots)

    def _queue_full(self, model: str | None) -> QueueFull:
        if self._max_buffered == 0:
            return QueueFull("no slot is free and queueing is off", retry_after=RETRY_AFTER)
        return QueueFull.of(
            self.num_waiting,
            "request",
            "requests",
            retry_after=RETRY_AFTER,
            position=self._waiting.next_place(model, self._able),
        )

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        waiting = [id for id, request in self._requests.items() if request.link is None]
        running = {id: agent.link for agent in self._agents.values() for id in agent.running}
        _require(all(id in self._waiting for id in waiting), "queues and requests disagree")
        _require(len(waiting) == self.num_waiting, "waiting requests are miscounted")
        _require(len(running) == self.num_running, "running requests are miscounted")
        for id, link in running.items():
            _require(self._requests[id].link == link, f"{id} does not run on {link}")
        _require(self.num_slots == sum(a.offer.slots for a in self._agents.values()), "slots")
        for agent in self._agents.values():
            self._check_agent(agent)
        self._waiting.check_integrity()
        self._free.check_integrity()

    def _check_agent(self, agent: _Agent) -> None:
        is_free = agent.link in self._free
        _require(is_free == agent.has_free_slot, f"{agent.link} is misplaced")
        if agent.has_free_slot:
            _require(self._next_for(agent) is None, f"a request waits for {agent.link} in vain")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
