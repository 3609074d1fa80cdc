"""The queries that have not ended: which agents answer their parts, and what follows for clients.

Queries take no slots: each `Lane` has a dispatch of its own, in which agents have room for a few
parts. A part whose agent is lost, or declines because it shuts down or has too much to do, goes to
another agent.

Invariants: every accepted query ends exactly once, with all results or one error; its deadline is
armed, and dispatch has those of its parts that have no result.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

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
from ..decisions import Decision, LinkId, Refuse, Settle
from ..lifecycle import NotServed, WhyNotServed
from ..limits import Limits
from ..load_shedding import Wait, refusal_of
from ..registry import Agent, Registry
from ..requests.dispatch.dispatch import AssignSlot, Dispatch
from ..requests.eligibility import Offer
from ..routing.policies.load import LeastLoad
from ..tally import Tally
from ..view import RequestView
from .query import Lane, Part, QueryLifecycle, QueryRequest, fits

PARTS_PER_AGENT: dict[Lane, int] = {"text": 16, "vision": 2, "audio": 2, "embed": 2, "rank": 2}
"""Parts that an agent has at once: enough that it never waits for the next."""

MAX_AGENTS_LOST = 2
"""Agents that may be lost with a query's parts before it is taken for the cause, and ends."""


class QueryDispatcher:
    """Every method returns decisions, to be carried out in their order."""

    def __init__(self, limits: Limits, registry: Registry, changes: ChangeLog) -> None:
        self._limits = limits
        self._registry = registry
        self._changes = changes
        self._lanes: dict[Lane, Dispatch[Part]] = {
            lane: Dispatch(limits.max_buffered_requests, LeastLoad()) for lane in PARTS_PER_AGENT
        }
        self._num_waiting: Tally[Lane] = Tally()
        """Queries with a part that no agent has yet."""
        self._queries: dict[RequestId, QueryLifecycle] = {}
        self._deadlines: Deadlines[QueryLifecycle] = Deadlines()

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, id: object) -> bool:
        return id in self._queries

    @property
    def is_ready(self) -> bool:
        """Whether an agent embeds, be it that it can do nothing else."""
        return self._lanes["embed"].is_ready

    @property
    def num_pending(self) -> int:
        """Parts that no agent has yet."""
        return sum(dispatch.num_waiting for dispatch in self._lanes.values())

    @property
    def num_asked(self) -> int:
        """Parts that agents have."""
        return sum(dispatch.num_running for dispatch in self._lanes.values())

    def has_room(self, query_request: QueryRequest) -> bool:
        """Whether an agent would get a part of it at once."""
        return self._lanes[query_request.lane].has_free_slot(query_request.model)

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
        for each in self._queries.values():
            if each.num_waiting:
                yield each.query_request.model, 1, each.accepted_at

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
        parts, dispatch = lifecycle.split(), self._lanes[lifecycle.lane]
        self._wait(lifecycle, len(parts))
        return self._start((each for part in parts for each in dispatch.resume(part)), now)

    def refuse(self, lifecycle: QueryLifecycle, error: RequestError, now: float) -> list[Decision]:
        """Turn away a newcomer that was never accepted."""
        return [Refuse(lifecycle.id, error), lifecycle.finish(error.code, now, error)]

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """Its client has gone."""
        lifecycle = self._queries[id]
        return [lifecycle.finish("client_gone", now), *self._end([lifecycle], now)]

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """End these."""
        error = Cancelled("cancelled before it was answered")
        return self._fail((self._queries[id] for id in ids), error, now)

    def refuse_waiting(self, errors: Mapping[str, RequestError], now: float) -> list[Decision]:
        """End those that wait for models of this name: they would wait in vain."""
        waiting = [each for each in self._queries.values() if each.is_waiting]
        found = {each: errors.get(each.query_request.model or "") for each in waiting}
        return self._fail_each({each: error for each, error in found.items() if error}, now)

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Models of `names` are called something else now: queries for them follow."""
        following = [(each, each.following(names)) for each in self._lanes.values()]
        for query in self._queries.values():
            if query.query_request.model in names:
                query.renamed(names)
                self._changes.advance()
        renamed = (each for dispatch, parts in following for each in dispatch.renamed(parts))
        return self._start(renamed, now)

    # ---- what agents send

    def replied(self, agent: Agent, reply: Reply, now: float) -> list[Decision] | None:
        """A part was answered; `None`: the agent does not have it (any more)."""
        lifecycle = self._queries.get(RequestId(reply.id.rpartition(".")[0]))
        part = None if lifecycle is None else lifecycle.parts.get(reply.id)
        if lifecycle is None or part is None or part.slot != agent.link:
            return None
        if _is_for_another(reply.result):
            return self._came_back(agent, part, now)
        lifecycle.results[part.number] = reply.result
        if (error := _fault(part.query, reply.result)) is not None:
            return self._fail([lifecycle], error, now)
        if lifecycle.is_complete:
            finish = lifecycle.finish("answered", now)
            return [lifecycle.answer(), finish, *self._end([lifecycle], now)]
        del lifecycle.parts[part.id]
        return self._start(self._lanes[lifecycle.lane].ended(part), now)

    # ---- agents join, change and leave

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is here, or has another model, or takes work again, or no longer."""
        decisions: list[Decision] = []
        for lane, dispatch in self._lanes.items():
            offer = _offer_of(agent, lane)
            is_here = dispatch.has_agent(agent.link)
            changed = dispatch.agent_changed if is_here else dispatch.agent_joined
            decisions += self._start(changed(agent.link, offer), now)
        return decisions

    def agent_left(self, agent: Agent, now: float, *, hung_up: bool = False) -> list[Decision]:
        """An agent is lost: its parts go to other agents.

        Their queries are no suspects if it `hung_up` in good order.
        """
        decisions: list[Decision] = []
        for dispatch in self._lanes.values():
            if dispatch.has_agent(agent.link):
                decisions += self._left(agent.link, dispatch, now, hung_up=hung_up)
        return decisions

    def _left(
        self, link: LinkId, dispatch: Dispatch[Part], now: float, *, hung_up: bool
    ) -> list[Decision]:
        lost = dispatch.running_on(link)
        queries = list(dict.fromkeys(part.of for part in lost))
        for query in () if hung_up else queries:
            query.num_agents_lost += 1
        suspects = [each for each in queries if each.num_agents_lost >= MAX_AGENTS_LOST]
        ended = [part for part in lost if part.of in suspects]
        for part in lost:
            if part in ended:
                del part.of.parts[part.id]
            else:
                self._wait(part.of, 1)
        placed = dispatch.agent_left(link, ended)
        error = AgentLost(
            f"{MAX_AGENTS_LOST} agents were lost while they had this query, the likely cause"
        )
        decisions = [*self._fail(suspects, error, now), *self._start(placed, now)]
        for query in queries:
            if query not in suspects:
                self._look_for_agent(query, now)
        return decisions

    # ---- time

    def due(self, now: float, why_not_served: WhyNotServed) -> list[Decision]:
        """Those whose deadline has come end, all at once.

        None of them takes the room that another leaves: its deadline was taken out already.
        """

        def lack_of(lifecycle: QueryLifecycle) -> NotServed | None:
            model = lifecycle.query_request.model
            is_served = self._lanes[lifecycle.lane].num_slots_for(model)
            return None if is_served else why_not_served(model)

        due = self._deadlines.due(now)
        errors = {each: each.overdue(now, lack_of(each)) for each in due}
        return self._fail_each({each: error for each, error in errors.items() if error}, now)

    def end_all(self, error: RequestError, now: float) -> list[Decision]:
        """End all queries."""
        return self._fail(list(self._queries.values()), error, now)

    def end_of(self, owner: str, error: RequestError, now: float) -> list[Decision]:
        """End the queries that a caller made."""
        made = [each for each in self._queries.values() if each.caller.owner == owner]
        return self._fail(made, error, now)

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """End queries with a waiting part that no connected agent can answer."""
        stranded = (part.of for each in self._lanes.values() for part in each.stranded())
        return self._fail(list(dict.fromkeys(stranded)), error, now)

    # ---- inside

    def _refusal(self, query_request: QueryRequest) -> QueueFull | None:
        if self.has_room(query_request):
            return None
        num_before = self._num_waiting[query_request.lane]
        most = self._limits.max_buffered_requests
        return refusal_of(Wait(num_before=num_before, most=most, one="query"))

    def _came_back(self, agent: Agent, part: Part, now: float) -> list[Decision]:
        """The agent declined the part: another agent may take it, or the same one after a pause."""
        self._registry.rests(agent, now)
        self._wait(part.of, 1)
        placed = self._lanes[part.of.lane].came_back(part)
        self._look_for_agent(part.of, now)
        return self._start(placed, now)

    def _look_for_agent(self, lifecycle: QueryLifecycle, now: float) -> None:
        """The query waits again, unless an agent has a part of it."""
        if not lifecycle.is_asked:
            lifecycle.waits(now)
            self._deadlines.arm(lifecycle)
            self._changes.advance()

    def _fail(
        self, ended: Iterable[QueryLifecycle], error: RequestError, now: float
    ) -> list[Decision]:
        return self._fail_each(dict.fromkeys(ended, error), now)

    def _fail_each(
        self, errors: Mapping[QueryLifecycle, RequestError], now: float
    ) -> list[Decision]:
        decisions: list[Decision] = []
        for query, error in errors.items():
            decisions += [Settle(query.id, error), query.finish(error.code, now, error)]
        return [*decisions, *self._end(errors, now)]

    def _end(self, queries: Collection[QueryLifecycle], now: float) -> list[Decision]:
        """Withdraw their parts from agents, and give the room to others; those that wait go first.

        So no part of theirs starts in the room of another.
        """
        for query in queries:
            del self._queries[query.id]
            self._deadlines.disarm(query)
            self._changes.advance()
            self._wait(query, -query.num_waiting)
        decisions: list[Decision] = []
        parts = [part for query in queries for part in query.parts.values()]
        for part in sorted(parts, key=lambda part: part.slot is not None):
            if part.slot is not None and part.number not in part.of.results:
                withdraw = self._registry.message_to(part.slot, Withdraw(id=part.id), now)
                decisions.append(withdraw)
            decisions += self._start(self._lanes[part.of.lane].ended(part), now)
        return decisions

    def _wait(self, query: QueryLifecycle, num: int) -> None:
        """So many more of its parts have no agent."""
        was_waiting = query.num_waiting > 0
        query.num_waiting += num
        self._num_waiting.add(query.lane, (query.num_waiting > 0) - was_waiting)

    def _start(self, assigned: Iterable[AssignSlot[Part]], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            part, agent = assign.request, self._registry[assign.link]
            self._wait(part.of, -1)
            part.of.begins(agent.name, now)
            agent.used_at = now
            self._changes.advance()
            ask = Ask(id=part.id, query=part.query)
            decisions.append(self._registry.message_to(agent.link, ask, now))
        return decisions

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._deadlines.check_integrity()
        for dispatch in self._lanes.values():
            dispatch.check_integrity()
        parts = [part for query in self._queries.values() for part in query.parts.values()]
        if len(parts) != self.num_pending + self.num_asked:
            raise RuntimeError("dispatch has other parts than queries")
        for id, query in self._queries.items():
            if query.armed_at is None or not query.parts:
                raise RuntimeError(f"{id} has no deadline, or has ended")
            if query.num_waiting != sum(part.slot is None for part in query.parts.values()):
                raise RuntimeError(f"the parts of {id} that wait are miscounted")
        for lane in PARTS_PER_AGENT:
            waiting = [each for each in self._queries.values() if each.num_waiting]
            if self._num_waiting[lane] != sum(each.lane == lane for each in waiting):
                raise RuntimeError("queries that wait are miscounted")


def _offer_of(agent: Agent, lane: Lane) -> Offer:
    """What the agent takes of such queries, however many slots it has."""
    tasks = agent.model.tasks if agent.model else ()
    answers = lane in tasks if lane in ("embed", "rank") else agent.abilities >= TOKENIZER
    can = answers and (lane == "text" or lane in tasks)
    return Offer(
        model=agent.served if can else None,
        slots=PARTS_PER_AGENT[lane],
        is_accepting=agent.takes_work,
    )


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
