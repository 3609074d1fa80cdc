"""The queries that have not ended: which agents answer their parts, and what follows for clients.

Queries take no slots: each `Lane` has a queue of its own and a limit of parts per agent. A part
whose agent is lost, or declines because it shuts down or has too much to do, goes to another agent.

Invariants: every accepted query ends exactly once, with all results or one error; a query is here
exactly when its queue has it, and its deadline is armed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    QueueFull,
    RequestError,
    ShuttingDown,
    from_agent,
)
from ....shared.inference import RequestId
from ....shared.inference.abilities import TOKENIZER
from ....shared.messages import Ask, Reply, Withdraw
from ....shared.queries import Declined, Query, Result
from ..caller import Caller
from ..change_log import ChangeLog
from ..deadlines import Deadlines
from ..decisions import Decision, Refuse, Settle
from ..lifecycle import NotServed, WhyNotServed
from ..limits import Limits
from ..load_shedding import Wait, refusal_of
from ..registry import Agent, Registry
from ..view import RequestView
from .query import Lane, QueryLifecycle, QueryRequest, fits
from .query_queue import Hand, Part, QueryQueue

PARTS_PER_AGENT: dict[Lane, int] = {"text": 16, "vision": 2, "audio": 2, "embed": 2, "rank": 2}
"""Parts that an agent has at once: enough that it never waits for the next."""

MAX_AGENTS_LOST = 2
"""Agents that may be lost with a query's parts before it is taken for the cause, and ends."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """A query that is over, and the decisions that end it."""

    lifecycle: QueryLifecycle
    last: tuple[Decision, ...]


class QueryDispatcher:
    """Every method returns decisions, to be carried out in their order."""

    def __init__(self, limits: Limits, registry: Registry, changes: ChangeLog) -> None:
        self._limits = limits
        self._registry = registry
        self._changes = changes
        self._queues = {lane: QueryQueue(most) for lane, most in PARTS_PER_AGENT.items()}
        self._queries: dict[RequestId, QueryLifecycle] = {}
        self._deadlines: Deadlines[QueryLifecycle] = Deadlines()

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, id: object) -> bool:
        return id in self._queries

    @property
    def is_ready(self) -> bool:
        """Whether an agent embeds, be it that it can do nothing else."""
        return self._queues["embed"].is_ready

    @property
    def num_pending(self) -> int:
        """Parts that no agent has yet."""
        return sum(queue.num_pending for queue in self._queues.values())

    @property
    def num_asked(self) -> int:
        """Parts that agents have."""
        return sum(queue.num_asked for queue in self._queues.values())

    def has_room(self, query_request: QueryRequest) -> bool:
        """Whether an agent would get a part of it at once."""
        return self._queues[query_request.lane].has_room(query_request.model)

    def next_deadline(self) -> float | None:
        """Not later than the first query's deadline."""
        return self._deadlines.next()

    def views(self, now: float) -> Iterator[RequestView]:
        """All of them, oldest first."""
        return (lifecycle.view(now) for lifecycle in self._queries.values())

    def __getitem__(self, id: RequestId) -> QueryLifecycle:
        """The lifecycle of a query that has not ended."""
        return self._queries[id]

    def demands(self) -> Iterator[tuple[str | None, int, float]]:
        """Models that queries wait for: how many wait, and since when the first does."""
        for queue in self._queues.values():
            for model, num_waiting, first in queue.waiting():
                yield model, num_waiting, self._queries[first].accepted_at

    # ---- what clients do

    def admit(
        self, id: RequestId, query_request: QueryRequest, caller: Caller, now: float
    ) -> list[Decision]:
        """Accept a newcomer, or refuse it when the queue is full."""
        lifecycle = QueryLifecycle(id, query_request, self._limits, now, caller=caller)
        if (error := self._refusal(query_request)) is not None:
            return self.refuse(lifecycle, error, now)
        self._queries[id] = lifecycle
        self._deadlines.arm(lifecycle)
        self._changes.advance()
        queue = self._queues[query_request.lane]
        hands = queue.enqueue(id, query_request.model, len(query_request.parts))
        return self._hand_out(hands, now)

    def refuse(self, lifecycle: QueryLifecycle, error: RequestError, now: float) -> list[Decision]:
        """Turn away a newcomer that was never accepted."""
        return [Refuse(lifecycle.id, error), lifecycle.finish(error.code, now, error)]

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """Its client has gone."""
        lifecycle = self._queries[id]
        return self._end([_Ending(lifecycle, (lifecycle.finish("client_gone", now),))], now)

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """End these."""
        error = Cancelled("cancelled before it was answered")
        return self._fail((self._queries[id] for id in ids), error, now)

    def refuse_waiting(self, errors: Mapping[str, RequestError], now: float) -> list[Decision]:
        """End those that wait for models of this name: they would wait in vain."""
        waiting = [each for each in self._queries.values() if each.is_waiting]
        found = [(each, errors.get(each.query_request.model or "")) for each in waiting]
        return self._end([_failed(each, error, now) for each, error in found if error], now)

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Models of `names` are called something else now: queries for them follow."""
        decisions: list[Decision] = []
        for queue in self._queues.values():
            ids, hands = queue.renamed(names)
            for id in ids:
                self._queries[id].renamed(names)
                self._changes.advance()
            decisions += self._hand_out(hands, now)
        return decisions

    # ---- what agents send

    def replied(self, agent: Agent, reply: Reply, now: float) -> list[Decision] | None:
        """A part was answered; `None`: the agent does not have it (any more)."""
        part = _part(reply.id)
        lifecycle = None if part is None else self._queries.get(part.query)
        if part is None or lifecycle is None:
            return None
        queue = self._queues[lifecycle.lane]
        if queue.holder(part) != agent.link:
            return None
        if _is_for_another(reply.result):
            return self._came_back(agent, part, now)
        lifecycle.results[part.number] = reply.result
        if (error := _fault(lifecycle.query_request.parts[part.number], reply.result)) is not None:
            return self._fail([lifecycle], error, now)
        if not lifecycle.is_complete:
            return self._hand_out(queue.done(part), now)
        return self._end(
            [_Ending(lifecycle, (lifecycle.answer(), lifecycle.finish("answered", now)))], now
        )

    # ---- agents join, change and leave

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is here, or has another model, or takes work again, or no longer."""
        decisions: list[Decision] = []
        for lane, queue in self._queues.items():
            can = agent.takes_work and _can(agent, lane)
            hands = queue.agent_changed(agent.link, agent.served if can else None)
            decisions += self._hand_out(hands, now)
        return decisions

    def agent_left(self, agent: Agent, now: float, *, hung_up: bool = False) -> list[Decision]:
        """An agent is lost: its parts go to other agents.

        Their queries are no suspects if it `hung_up` in good order.
        """
        decisions: list[Decision] = []
        for queue in self._queues.values():
            lost = queue.agent_left(agent.link)
            for id in () if hung_up else lost:
                decisions += self._lost_agent(self._queries[id], now)
            left = [id for id in lost if id in self._queries]
            decisions += self._hand_out(queue.spread(left), now)
            for id in left:
                self._look_for_agent(self._queries[id], now)
        return decisions

    # ---- time

    def due(self, now: float, why_not_served: WhyNotServed) -> list[Decision]:
        """Those whose deadline has come end, all at once.

        None of them takes the room that another leaves: its deadline was taken out already.
        """

        def lack_of(lifecycle: QueryLifecycle) -> NotServed | None:
            model = lifecycle.query_request.model
            is_served = self._queues[lifecycle.lane].is_served(model)
            return None if is_served else why_not_served(model)

        due = self._deadlines.due(now)
        errors = [(each, each.overdue(now, lack_of(each))) for each in due]
        return self._end([_failed(each, error, now) for each, error in errors if error], now)

    def end_all(self, error: RequestError, now: float) -> list[Decision]:
        """End all queries."""
        return self._fail(list(self._queries.values()), error, now)

    def end_of(self, owner: str, error: RequestError, now: float) -> list[Decision]:
        """End the queries that a caller made."""
        made = [each for each in self._queries.values() if each.caller.owner == owner]
        return self._fail(made, error, now)

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """End queries with a waiting part that no connected agent can answer."""
        stranded = [self._queries[id] for queue in self._queues.values() for id in queue.stranded()]
        return self._fail(stranded, error, now)

    # ---- inside

    def _refusal(self, query_request: QueryRequest) -> QueueFull | None:
        if self.has_room(query_request):
            return None
        num_before = self._queues[query_request.lane].num_waiting
        most = self._limits.max_buffered_requests
        return refusal_of(Wait(num_before=num_before, most=most, one="query"))

    def _lost_agent(self, lifecycle: QueryLifecycle, now: float) -> list[Decision]:
        lifecycle.num_agents_lost += 1
        if lifecycle.num_agents_lost < MAX_AGENTS_LOST:
            return []
        error = AgentLost(
            f"{MAX_AGENTS_LOST} agents were lost while they had this query, the likely cause"
        )
        return self._fail([lifecycle], error, now)

    def _came_back(self, agent: Agent, part: Part, now: float) -> list[Decision]:
        """The agent declined the part: another agent may take it, or the same one after a pause."""
        self._registry.rests(agent, now)
        lifecycle = self._queries[part.query]
        hands = self._queues[lifecycle.lane].came_back(part)
        self._look_for_agent(lifecycle, now)
        return self._hand_out(hands, now)

    def _look_for_agent(self, lifecycle: QueryLifecycle, now: float) -> None:
        """The query waits again, unless an agent has a part of it."""
        if not self._queues[lifecycle.lane].is_asked(lifecycle.id):
            lifecycle.waits(now)
            self._deadlines.arm(lifecycle)
            self._changes.advance()

    def _fail(
        self, ended: Iterable[QueryLifecycle], error: RequestError, now: float
    ) -> list[Decision]:
        return self._end([_failed(lifecycle, error, now) for lifecycle in ended], now)

    def _end(self, endings: Sequence[_Ending], now: float) -> list[Decision]:
        """End these queries, withdraw their parts from agents, and give the room to others."""
        decisions: list[Decision] = [each for ending in endings for each in ending.last]
        for lifecycle in (ending.lifecycle for ending in endings):
            del self._queries[lifecycle.id]
            self._deadlines.disarm(lifecycle)
            self._changes.advance()
        for lane, queue in self._queues.items():
            ended = {
                each.lifecycle.id: each.lifecycle for each in endings if each.lifecycle.lane == lane
            }
            withdrawn, hands = queue.closed(ended)
            decisions += [
                self._registry.message_to(hand.link, Withdraw(id=_name(hand.part)), now)
                for hand in withdrawn
                if hand.part.number not in ended[hand.part.query].results
            ]
            decisions += self._hand_out(hands, now)
        return decisions

    def _hand_out(self, hands: Iterable[Hand], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for hand in hands:
            lifecycle = self._queries[hand.part.query]
            lifecycle.begins(self._registry[hand.link].name, now)
            self._registry[hand.link].used_at = now
            self._changes.advance()
            ask = Ask(id=_name(hand.part), query=lifecycle.query_request.parts[hand.part.number])
            decisions.append(self._registry.message_to(hand.link, ask, now))
        return decisions

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._deadlines.check_integrity()
        for queue in self._queues.values():
            queue.check_integrity()
        for id, lifecycle in self._queries.items():
            if lifecycle.armed_at is None or lifecycle.is_complete:
                raise RuntimeError(f"{id} has no deadline, or has ended")


def _failed(lifecycle: QueryLifecycle, error: RequestError, now: float) -> _Ending:
    return _Ending(
        lifecycle, (Settle(lifecycle.id, error), lifecycle.finish(error.code, now, error))
    )


def _can(agent: Agent, lane: Lane) -> bool:
    tasks = agent.model.tasks if agent.model else ()
    if lane != "text" and lane not in tasks:
        return False
    return lane in ("embed", "rank") or agent.abilities >= TOKENIZER


def _name(part: Part) -> RequestId:
    return RequestId(f"{part.query}.{part.number}")


def _part(name: RequestId) -> Part | None:
    query, dot, number = name.rpartition(".")
    is_number = dot and number.isascii() and number.isdigit() and len(number) < 10
    return Part(RequestId(query), int(number)) if is_number else None


def _is_for_another(result: Result) -> bool:
    """Whether the agent declined and another one may answer."""
    codes = (ShuttingDown.code, QueueFull.code)
    return isinstance(result, Declined) and result.error.code in codes


def _fault(query: Query, result: Result) -> RequestError | None:
    """The error where `result` does not answer `query`."""
    if isinstance(result, Declined):
        return from_agent(result.error)
    if not fits(query, result):
        return EngineFailed("the agent's answer does not fit the query")
    return None
