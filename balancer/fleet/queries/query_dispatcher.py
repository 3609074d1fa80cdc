"""The queries that have not ended: which agents answer their parts, and what clients get.

Queries use no slots. Each `Lane` has its own dispatch, in which an agent takes a few parts at
once. A part goes to another agent if its agent is lost, or declines it because it shuts down or is
overloaded.

A part may be what ended its agent. If the agent was lost just after it got the part, the part is a
*suspect*: it runs on an agent without other work, which gets none meanwhile.

Invariants: every accepted query ends exactly once, with all results or one error; dispatch has the
parts without a result, except suspects.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ....shared.errors import (
    AgentLost,
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
from ..change_log import ChangeLog
from ..decisions import Decision, LinkId, Refuse, Settle
from ..lifecycle import Lives, NotServed, WhyNotServed
from ..limits import Limits
from ..queue_full import Wait, refusal_of
from ..registry import Agent, Registry
from ..requests.dispatch.dispatch import AssignSlot, Dispatch
from ..requests.eligibility import Offer
from ..requests.request import SUSPECT_SECONDS
from ..requests.requests import Requests
from ..routing.policies.load import LeastLoad
from ..tally import Tally
from .query import Lane, Part, QueryLifecycle, QueryRequest, fits

PARTS_PER_AGENT: dict[Lane, int] = {"text": 16, "vision": 2, "audio": 2, "embed": 2, "rank": 2}
"""Maximum parts that an agent has at once: enough that it never waits for the next part."""

MAX_AGENTS_LOST = 2
"""Agents lost with a query's parts after which the query counts as the cause, and ends."""


class QueryDispatcher:
    """All queries. Every method that changes them returns decisions, to be carried out in order."""

    def __init__(
        self,
        limits: Limits,
        registry: Registry,
        changes: ChangeLog,
        lives: Lives,
        requests: Requests,
    ) -> None:
        self._limits = limits
        self._registry = registry
        self._requests = requests
        self._changes = changes
        self._lanes: dict[Lane, Dispatch[Part]] = {
            lane: Dispatch(limits.max_buffered_requests, LeastLoad()) for lane in PARTS_PER_AGENT
        }
        self._num_waiting: Tally[Lane] = Tally()
        """Queries with a part that no agent has yet."""
        self._suspects: dict[RequestId, Part] = {}
        """Parts that wait for an agent without other work."""
        self._tried: dict[LinkId, Part] = {}
        """The suspects that agents run."""
        self._lives = lives

    @property
    def is_ready(self) -> bool:
        """Whether an agent can embed texts, even if it has no other ability."""
        return self._lanes["embed"].is_ready

    @property
    def num_pending(self) -> int:
        """The number of parts without an agent."""
        num_waiting = sum(dispatch.num_waiting for dispatch in self._lanes.values())
        return num_waiting + len(self._suspects)

    @property
    def num_asked(self) -> int:
        """The number of parts that agents have."""
        num_running = sum(dispatch.num_running for dispatch in self._lanes.values())
        return num_running + len(self._tried)

    def has_room(self, query_request: QueryRequest) -> bool:
        """Return whether an agent would take a part of the query at once."""
        return self._lanes[query_request.lane].has_free_slot(query_request.model)

    def demands(self) -> Iterator[tuple[str | None, int, float]]:
        """Return each model that queries wait for, with their number and the first arrival."""
        for each in self._all():
            if each.num_waiting:
                yield each.asked.model, 1, each.accepted_at

    # ---- what clients do

    def admit(self, query: QueryLifecycle, now: float) -> list[Decision]:
        """Accept a new query, or refuse it if the queue is full."""
        if (error := self._refusal(query.asked)) is not None:
            return refuse(query, error, now)
        self._lives.add(query)
        self._lives.arm(query)
        parts, dispatch = query.split(), self._lanes[query.lane]
        self._wait(query, len(parts))
        return self._start((each for part in parts for each in dispatch.resume(part)), now)

    def close(self, query: QueryLifecycle, now: float) -> list[Decision]:
        """End a query whose client has disconnected."""
        return [query.finish("client_gone", now), *self._end([query], now)]

    def renamed(self, names: Mapping[str, str], now: float) -> list[Decision]:
        """Move the queries for models with old names, the keys of `names`, to the new names."""
        following = [(each, each.following(names)) for each in self._lanes.values()]
        for query in self._all():
            if query.asked.model in names:
                query.renamed(names)
                self._changes.advance()
        renamed = (each for dispatch, parts in following for each in dispatch.renamed(parts))
        return self._start(renamed, now)

    # ---- what agents send

    def replied(self, agent: Agent, reply: Reply, now: float) -> list[Decision] | None:
        """Take the result of a part; return no decisions if the agent does not have the part."""
        query = self._lives.get(RequestId(reply.id.rpartition(".")[0]))
        if not isinstance(query, QueryLifecycle):
            return None
        part = query.parts.get(reply.id)
        if part is None or part.slot != agent.link:
            return None
        if _is_for_another(reply.result):
            return self._came_back(agent, part, now)
        query.results[part.number] = reply.result
        if (error := _fault(part.query, reply.result)) is not None:
            return self.end({query: error}, now)
        if query.is_complete:
            finish = query.finish("answered", now)
            return [query.answer(), finish, *self._end([query], now)]
        del query.parts[part.id]
        return self._ended(part, now)

    # ---- agents join, change and leave

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """Add an agent, or update one that changed."""
        decisions: list[Decision] = []
        for lane, dispatch in self._lanes.items():
            offer = _offer_of(agent, lane)
            is_here = dispatch.has_agent(agent.link)
            changed = dispatch.agent_changed if is_here else dispatch.agent_joined
            decisions += self._start(changed(agent.link, offer), now)
        return [*decisions, *self.try_suspects(now)]

    def agent_left(
        self, agent: Agent, now: float, *, hung_up: bool = False, has_crashed: bool = False
    ) -> list[Decision]:
        """Give the parts of a lost agent to other agents.

        If the agent `hung_up` in good order, its queries are not suspected. If it `has_crashed`,
        the parts that it got just before are suspects.
        """
        link = agent.link
        lanes = [each for each in self._lanes.values() if each.has_agent(link)]
        lost = [part for each in lanes for part in each.running_on(link)]
        if (tried := self._tried.pop(link, None)) is not None:
            tried.slot = None
            lost.append(tried)
        queries = dict.fromkeys(part.of for part in lost if part.of.id in self._lives)
        for query in () if hung_up else queries:
            query.num_agents_lost += 1
        guilty = [each for each in queries if each.num_agents_lost >= MAX_AGENTS_LOST]
        go_on = [each for each in queries if each not in guilty]
        for part in lost:
            if part.of not in go_on:
                del part.of.parts[part.id]
                continue
            self._wait(part.of, 1)
            is_new = now - part.assigned_at <= SUSPECT_SECONDS
            if part is tried or (has_crashed and is_new):
                self._suspects[part.id] = part
        placed: list[AssignSlot[Part]] = []
        for each in lanes:
            running = each.running_on(link)
            gone = [p for p in running if p.of not in go_on or p.id in self._suspects]
            placed += each.agent_left(link, gone)
        error = AgentLost(
            f"{MAX_AGENTS_LOST} agents were lost while they ran this query, so it is the "
            "likely cause"
        )
        decisions = [*self.end(dict.fromkeys(guilty, error), now), *self._start(placed, now)]
        for query in go_on:
            self._look_for_agent(query, now)
        return [*decisions, *self.try_suspects(now)]

    # ---- suspects

    def try_suspects(self, now: float) -> list[Decision]:
        """Give suspects to agents that have no other work, which then get none."""
        decisions: list[Decision] = []
        for part in list(self._suspects.values()):
            agent = next((each for each in self._registry if self._may_try(each, part)), None)
            if agent is None:
                continue
            del self._suspects[part.id]
            self._tried[agent.link] = part
            part.slot = agent.link
            self._requests.dispatch.agent_rests(agent.link)
            for dispatch in self._lanes.values():
                dispatch.agent_rests(agent.link)
            decisions += self._start([AssignSlot(part, agent.link)], now)
        return decisions

    def _may_try(self, agent: Agent, part: Part) -> bool:
        """Return whether the agent answers such parts and has no other work."""
        link, offer = agent.link, _offer_of(agent, part.of.lane)
        lanes = self._lanes.values()
        return (
            offer.is_able
            and part.queue_key in offer.names
            and link not in self._tried
            and self._requests.dispatch.has_agent(link)
            and all(each.has_agent(link) for each in lanes)
            and not self._requests.dispatch.num_running_on(link)
            and not any(each.num_running_on(link) for each in lanes)
        )

    def _was_tried(self, link: LinkId, now: float) -> list[Decision]:
        """Give an agent other work again: the suspect that it ran is no longer there."""
        self._tried.pop(link).slot = None
        decisions = self.try_suspects(now)
        if link not in self._tried:
            decisions += self._requests.agent_rested(self._registry[link], now)
            for dispatch in self._lanes.values():
                decisions += self._start(dispatch.agent_rested(link), now)
        return decisions

    def _ended(self, part: Part, now: float) -> list[Decision]:
        """Forget a part, and let others start."""
        if self._suspects.pop(part.id, None) is not None:
            return []
        if part.slot is not None and self._tried.get(part.slot) is part:
            return self._was_tried(part.slot, now)
        return self._start(self._lanes[part.of.lane].ended(part), now)

    # ---- time

    def due(
        self, due: Iterable[QueryLifecycle], now: float, why_not_served: WhyNotServed
    ) -> list[Decision]:
        """End the queries whose deadline has passed, all together."""

        def lack_of(query: QueryLifecycle) -> NotServed | None:
            model = query.asked.model
            is_served = self._lanes[query.lane].num_slots_for(model)
            return None if is_served else why_not_served(model)

        errors = {each: each.overdue(now, lack_of(each)) for each in due}
        return self.end({each: error for each, error in errors.items() if error}, now)

    def end(self, errors: Mapping[QueryLifecycle, RequestError], now: float) -> list[Decision]:
        """End queries with their errors, all together."""
        decisions: list[Decision] = []
        for query, error in errors.items():
            decisions += [Settle(query.id, error), query.finish(error.code, now, error)]
        return [*decisions, *self._end(errors, now)]

    def stranded(self) -> list[QueryLifecycle]:
        """Return the queries with a waiting part that no connected agent can answer."""
        parts = [part for each in self._lanes.values() for part in each.stranded()]
        return list(dict.fromkeys(part.of for part in (*parts, *self._suspects.values())))

    # ---- inside

    def _refusal(self, query_request: QueryRequest) -> QueueFull | None:
        if self.has_room(query_request):
            return None
        num_before = self._num_waiting[query_request.lane]
        most = self._limits.max_buffered_requests
        return refusal_of(Wait(num_before=num_before, most=most, one="query"))

    def _came_back(self, agent: Agent, part: Part, now: float) -> list[Decision]:
        """Return a part to the queue because its agent declined it.

        The same agent may get the part again after a pause.
        """
        self._registry.rests(agent, now)
        self._wait(part.of, 1)
        if self._tried.get(agent.link) is part:
            self._suspects[part.id] = self._tried.pop(agent.link)
            part.slot = None
            self._look_for_agent(part.of, now)
            return []
        placed = self._lanes[part.of.lane].came_back(part)
        self._look_for_agent(part.of, now)
        return self._start(placed, now)

    def _look_for_agent(self, query: QueryLifecycle, now: float) -> None:
        """Let the query wait again, unless an agent has a part of it."""
        if query.num_waiting == len(query.parts):
            query.join_queue(now)
            self._lives.arm(query)
            self._changes.advance()

    def _end(self, queries: Collection[QueryLifecycle], now: float) -> list[Decision]:
        """End queries: withdraw their parts from agents, and let other parts start.

        Waiting parts are removed first, so that no part of an ending query starts in the place of
        another.
        """
        for query in queries:
            self._lives.remove(query)
            self._wait(query, -query.num_waiting)
        decisions: list[Decision] = []
        parts = [part for query in queries for part in query.parts.values()]
        for part in sorted(parts, key=lambda part: part.slot is not None):
            if part.slot is not None and part.number not in part.of.results:
                withdraw = self._registry.message_to(part.slot, Withdraw(id=part.id), now)
                decisions.append(withdraw)
            decisions += self._ended(part, now)
        return decisions

    def _wait(self, query: QueryLifecycle, num: int) -> None:
        """Count `num` more parts without an agent."""
        was_waiting = query.num_waiting > 0
        query.num_waiting += num
        self._num_waiting.add(query.lane, (query.num_waiting > 0) - was_waiting)

    def _start(self, assigned: Iterable[AssignSlot[Part]], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            part, agent = assign.request, self._registry[assign.link]
            part.assigned_at = now
            self._wait(part.of, -1)
            part.of.leave_queue(agent.name, now)
            agent.used_at = now
            self._changes.advance()
            ask = Ask(id=part.id, query=part.query)
            decisions.append(self._registry.message_to(agent.link, ask, now))
        return decisions

    def _all(self) -> list[QueryLifecycle]:
        return [each for each in self._lives if isinstance(each, QueryLifecycle)]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        live = self._all()
        for dispatch in self._lanes.values():
            dispatch.check_integrity()
        if any(part.slot != link for link, part in self._tried.items()):
            raise RuntimeError("an agent does not run the suspect that it was given")
        parts = [part for query in live for part in query.parts.values()]
        if len(parts) != self.num_pending + self.num_asked:
            raise RuntimeError("dispatch has other parts than queries")
        for query in live:
            if not query.parts:
                raise RuntimeError(f"{query.id} has ended")
            if query.num_waiting != sum(part.slot is None for part in query.parts.values()):
                raise RuntimeError(f"the parts of {query.id} that wait are miscounted")
        for lane in PARTS_PER_AGENT:
            waiting = [each for each in live if each.num_waiting]
            if self._num_waiting[lane] != sum(each.lane == lane for each in waiting):
                raise RuntimeError("queries that wait are miscounted")


def refuse(query: QueryLifecycle, error: RequestError, now: float) -> list[Decision]:
    """Refuse a new query with `error`."""
    return [Refuse(query.id, error), query.finish(error.code, now, error)]


def _offer_of(agent: Agent, lane: Lane) -> Offer:
    """Return the agent's offer for queries of this lane, which does not depend on its slots."""
    tasks = agent.model.tasks if agent.model else ()
    answers = lane in tasks if lane in ("embed", "rank") else agent.abilities >= TOKENIZER
    can = answers and (lane == "text" or lane in tasks)
    return Offer(
        model=agent.served if can else None,
        slots=PARTS_PER_AGENT[lane],
        is_accepting=agent.takes_work,
    )


def _is_for_another(result: Result) -> bool:
    """Return whether the agent declined the part, so that another agent may answer it."""
    codes = (ShuttingDown.code, QueueFull.code)
    return isinstance(result, Declined) and result.error.code in codes


def _fault(query: Query, result: Result) -> RequestError | None:
    """Return the error if `result` does not answer `query`."""
    if isinstance(result, Declined):
        return from_agent(result.error)
    if not fits(query, result):
        return EngineFailed("the agent's answer does not fit the query")
    return None
