"""Which part of a query goes to which agent: one kind of query, whose parts take no slots.

The agent with the fewest parts gets the next one. Waiting queries take turns, one part each, so a
small query never waits for the whole of a large one.

Invariants: no agent has more than `per_agent` parts; no part waits while an agent that could take
it has room; a part is pending, with one agent, or done.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ....shared.inference import RequestId
from ..decisions import LinkId
from ..requests.matching import Free, Queues
from ..tally import Tally


class Part(NamedTuple):
    """The part with this number of a query."""

    query: RequestId
    number: int


@dataclass(frozen=True, slots=True)
class Hand:
    """Ask the agent for the part."""

    part: Part
    link: LinkId


@dataclass(slots=True)
class _Agent:
    link: LinkId
    model: str | None = None
    turn: int = 0
    parts: set[Part] = field(default_factory=set)

    @property
    def keys(self) -> tuple[str | None, ...]:
        return (None, self.model)


@dataclass(slots=True)
class _Query:
    model: str | None
    pending: deque[int]
    holders: dict[int, LinkId] = field(default_factory=dict)
    rank: int = 0
    """Its place among those that wait, while it does."""


class QueryQueue:
    """Knows no time and no content. Every method returns the parts that agents get now."""

    def __init__(self, per_agent: int) -> None:
        self._per_agent = per_agent
        self._agents: dict[LinkId, _Agent] = {}
        self._queries: dict[RequestId, _Query] = {}
        self._waiting = Queues()
        self._free = Free()
        self._num_turns = 0
        self._able: Tally[str | None] = Tally()
        self.num_pending = 0
        """Parts that no agent has yet."""
        self.num_asked = 0
        """Parts that agents have."""

    @property
    def num_waiting(self) -> int:
        """Queries with a part that no agent has yet."""
        return len(self._waiting)

    @property
    def is_ready(self) -> bool:
        """Whether an agent takes such queries."""
        return None in self._able

    def is_served(self, model: str | None) -> bool:
        """Whether an agent takes such queries for that model."""
        return model in self._able

    def has_room(self, model: str | None) -> bool:
        """Whether a part for that model would go to an agent at once."""
        return self._free.first(model) is not None

    def waiting(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that queries wait for: how many wait, and the first of them."""
        return self._waiting.models()

    # ---- queries

    def enqueue(self, id: RequestId, model: str | None, num_parts: int) -> list[Hand]:
        """A query is accepted; its parts wait, or go to agents at once."""
        if id in self._queries:
            raise ValueError(f"query {id} is here already")
        query = self._queries[id] = _Query(model, deque(range(num_parts)))
        self.num_pending += num_parts
        self._wait(id, query)
        return self._spread(id, query)

    def closed(self, ids: Iterable[RequestId]) -> tuple[list[Hand], list[Hand]]:
        """Queries are over: the parts that agents still had, and the parts they get instead."""
        withdrawn = [hand for id in ids for hand in self._close(id)]
        links = dict.fromkeys(hand.link for hand in withdrawn)
        return withdrawn, self._fill_all(links)

    def is_asked(self, id: RequestId) -> bool:
        """Whether an agent has a part of the query."""
        return bool(self._queries[id].holders)

    def stranded(self) -> list[RequestId]:
        """Queries with a part that waits and that no agent will ever take, as things are."""
        return self._waiting.stranded(self._able)

    def holder(self, part: Part) -> LinkId | None:
        """The agent that has the part."""
        query = self._queries.get(part.query)
        return None if query is None else query.holders.get(part.number)

    def done(self, part: Part) -> list[Hand]:
        """The agent has answered."""
        link = self._take_back(part)
        return self._fill_all([link])

    def came_back(self, part: Part) -> list[Hand]:
        """The agent declined: it gets no part of this kind until it changes; another agent may."""
        self._assign_model(self._agents[self._take_back(part)], None)
        self._return(part)
        return self._spread(part.query, self._queries[part.query])

    def renamed(self, names: Mapping[str, str]) -> tuple[list[RequestId], list[Hand]]:
        """Queries for a model of `names` are for what it is called there; which, and who gets them.

        Parts that agents have stay with them.
        """
        found = [id for id, query in self._queries.items() if query.model in names]
        for id in found:
            query = self._queries[id]
            query.model = names.get(query.model or "")
            if query.pending:
                self._waiting.remove(id)
                self._waiting.put(id, query.model, query.rank)
        return found, [hand for id in found for hand in self._spread(id, self._queries[id])]

    # ---- agents

    def agent_changed(self, link: LinkId, model: str | None) -> list[Hand]:
        """An agent takes queries for `model`, or none with `None`; it keeps the parts it has."""
        self._assign_model(self._agents.setdefault(link, _Agent(link)), model)
        return self._fill_all([link])

    def agent_left(self, link: LinkId) -> list[RequestId]:
        """An agent is gone: the queries it had parts of, to be `spread` unless they end."""
        agent = self._agents.pop(link, None)
        if agent is None:
            return []
        self._assign_model(agent, None)
        lost = sorted(agent.parts)
        self.num_asked -= len(lost)
        for part in reversed(lost):
            del self._queries[part.query].holders[part.number]
            self._return(part)
        return list(dict.fromkeys(part.query for part in lost))

    def spread(self, ids: Iterable[RequestId]) -> list[Hand]:
        """The agents that get parts of these queries which wait."""
        return [hand for id in ids for hand in self._spread(id, self._queries[id])]

    # ---- inside

    def _close(self, id: RequestId) -> list[Hand]:
        """What agents still had of it."""
        query = self._queries.pop(id)
        if query.pending:
            self._waiting.remove(id)
            self.num_pending -= len(query.pending)
        withdrawn = [Hand(Part(id, number), link) for number, link in query.holders.items()]
        for hand in withdrawn:
            self._agents[hand.link].parts.remove(hand.part)
        self.num_asked -= len(withdrawn)
        return withdrawn

    def _assign_model(self, agent: _Agent, model: str | None) -> None:
        """From now on it takes queries for that model, or none."""
        self._free.discard(agent.link)
        self._count(agent, -1)
        agent.model = model
        self._count(agent, 1)

    def _count(self, agent: _Agent, sign: int) -> None:
        if agent.model is not None:
            for key in agent.keys:
                self._able.add(key, sign)

    def _spread(self, id: RequestId, query: _Query) -> list[Hand]:
        hands = []
        while query.pending and (link := self._free.first(query.model)) is not None:
            hands.append(self._hand(id, self._agents[link]))
        return hands

    def _fill_all(self, links: Iterable[LinkId]) -> list[Hand]:
        hands = []
        for link in links:
            agent = self._agents[link]
            self._rank(agent)
            while link in self._free and (id := self._next_for(agent)) is not None:
                hands.append(self._hand(id, agent))
        return hands

    def _hand(self, id: RequestId, agent: _Agent) -> Hand:
        query = self._queries[id]
        self._num_turns += 1
        part = Part(id, query.pending.popleft())
        self.num_pending -= 1
        self.num_asked += 1
        query.holders[part.number] = agent.link
        agent.parts.add(part)
        agent.turn = self._num_turns
        self._rank(agent)
        if query.pending:
            self._wait(id, query)
        else:
            self._waiting.remove(id)
        return Hand(part, agent.link)

    def _next_for(self, agent: _Agent) -> RequestId | None:
        return None if agent.model is None else self._waiting.first((None, agent.model))

    def _take_back(self, part: Part) -> LinkId:
        link = self._queries[part.query].holders.pop(part.number)
        self._agents[link].parts.remove(part)
        self.num_asked -= 1
        return link

    def _return(self, part: Part) -> None:
        query = self._queries[part.query]
        query.pending.appendleft(part.number)
        self.num_pending += 1
        if part.query not in self._waiting:
            self._wait(part.query, query)

    def _wait(self, id: RequestId, query: _Query) -> None:
        query.rank = self._num_turns
        self._waiting.put(id, query.model, query.rank)

    def _rank(self, agent: _Agent) -> None:
        if agent.model is None or len(agent.parts) >= self._per_agent:
            self._free.discard(agent.link)
        else:
            keys = (None, agent.model)
            self._free.put(agent.link, keys, float(len(agent.parts)), agent.turn)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        holders = {
            Part(id, n): link for id, q in self._queries.items() for n, link in q.holders.items()
        }
        if holders != {part: a.link for a in self._agents.values() for part in a.parts}:
            raise RuntimeError("queries and agents disagree")
        if self.num_pending != sum(len(query.pending) for query in self._queries.values()):
            raise RuntimeError("pending parts are miscounted")
        able = {key for a in self._agents.values() if a.model is not None for key in a.keys}
        if self.num_asked != len(holders) or set(self._able) != able:
            raise RuntimeError("asked parts or able agents are miscounted")
        if self.num_waiting != sum(bool(query.pending) for query in self._queries.values()):
            raise RuntimeError("waiting queries are miscounted")
        for agent in self._agents.values():
            if len(agent.parts) > self._per_agent:
                raise RuntimeError(f"{agent.link} has too many parts")
            has_room = agent.model is not None and len(agent.parts) < self._per_agent
            if (agent.link in self._free) != has_room:
                raise RuntimeError(f"{agent.link} is misplaced")
            if has_room and self._next_for(agent) is not None:
                raise RuntimeError(f"a part waits for {agent.link} in vain")
        self._waiting.check_integrity()
        self._free.check_integrity()
