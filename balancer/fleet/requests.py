"""The requests that have not ended: where each is, and what follows for the others from its end.

Invariants: a request is here exactly when dispatch has it; its exchange is with the link that
dispatch has it on; its alarm is armed.
"""

from collections.abc import Iterable

from ...shared.errors import AgentLost, Cancelled, EngineFailed, RequestError
from ...shared.inference import AgentId, GenerateRequest, RequestId
from ...shared.messages import Cancel, Ended, Piece, Start
from .alarms import Alarms
from .decisions import Decision, Refuse
from .dispatch import Assign, Dispatch
from .exchange import Exchange
from .limits import Limits
from .roster import Agent, Roster
from .view import RequestView

MAX_AGENTS_LOST = 3
"""Agents that may be lost with a request before it is taken for the cause, and ends."""


class Requests:
    """Every method returns what is to be done about it, in that order."""

    def __init__(self, limits: Limits, roster: Roster) -> None:
        self.dispatch = Dispatch(limits.max_buffered_requests)
        self._limits = limits
        self._roster = roster
        self._exchanges: dict[RequestId, Exchange] = {}
        self._alarms: Alarms[RequestId] = Alarms(lambda id: self._exchanges[id].deadline)

    def __len__(self) -> int:
        return len(self._exchanges)

    def __contains__(self, id: object) -> bool:
        return id in self._exchanges

    def get(self, id: RequestId) -> Exchange | None:
        """The exchange of a request that has not ended."""
        return self._exchanges.get(id)

    def next_deadline(self) -> float | None:
        """Not later than the first request's deadline."""
        return self._alarms.next()

    def views(self, now: float) -> list[RequestView]:
        """All of them, oldest first."""
        return [e.view(self._agent_id(e), now) for e in self._exchanges.values()]

    # ---- as clients wish

    def open(self, id: RequestId, request: GenerateRequest, now: float) -> list[Decision]:
        """Accept or refuse a newcomer."""
        exchange = Exchange(id, request, self._limits, now)
        assigned = self.dispatch.arrived(id, request.model)
        if isinstance(assigned, Refuse):
            return refuse(exchange, assigned.error, now)
        self._exchanges[id] = exchange
        self._alarms.arm(id)
        return self._start(assigned, now)

    def close(self, exchange: Exchange, now: float) -> list[Decision]:
        """Its client has gone: end it and tell nobody but the agent."""
        return [*self._stop(exchange, now), *self._end(exchange, [exchange.gone(now)], now)]

    def cancel(self, exchanges: Iterable[Exchange], now: float) -> list[Decision]:
        """End those that wait, have the agents end the others; no slot is freed meanwhile."""
        decisions: list[Decision] = []
        for exchange in exchanges:
            if exchange.link is None:
                decisions += self.fail(exchange, Cancelled("cancelled before it started"), now)
            else:
                decisions += self._stop(exchange, now)
        return decisions

    # ---- as agents say

    def gained(self, exchange: Exchange, piece: Piece, now: float) -> Iterable[Decision]:
        """A piece came."""
        is_first = not exchange.has_streamed
        decisions = exchange.gained(piece, now)
        if is_first:
            self._alarms.arm(exchange.id)
        return decisions

    def done(self, exchange: Exchange, end: Ended, now: float) -> list[Decision]:
        """It ended well."""
        return self._end(exchange, exchange.done(end, now), now)

    def fail(self, exchange: Exchange, error: RequestError, now: float) -> list[Decision]:
        """It ends with an error, of which the agent knows."""
        return self._end(exchange, exchange.failed(error, now), now)

    def hand_back(self, exchange: Exchange, now: float) -> list[Decision]:
        """The agent will not start it: it goes elsewhere, unless its client has cancelled it."""
        if exchange.is_cancelling:
            return self.fail(exchange, Cancelled("cancelled before it started"), now)
        if exchange.has_streamed:
            return self.fail(exchange, EngineFailed("given back after it had started"), now)
        self._unassign(exchange, now)
        return self._start(self.dispatch.came_back(exchange.id), now)

    # ---- as agents come and go

    def agent_joined(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is ready to be given work."""
        assigned = self.dispatch.agent_joined(
            agent.link, model=agent.generates, slots=agent.slots, is_accepting=agent.is_accepting
        )
        return self._start(assigned, now)

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent has other slots or another model, or takes work again, or no longer."""
        assigned = self.dispatch.agent_changed(
            agent.link, model=agent.generates, slots=agent.slots, is_accepting=agent.is_accepting
        )
        return self._start(assigned, now)

    def agent_rested(self, agent: Agent, now: float) -> list[Decision]:
        """An agent that was full may be tried again."""
        return self._start(self.dispatch.agent_rested(agent.link), now)

    def agent_left(self, agent: Agent, now: float) -> list[Decision]:
        """What it never answered goes elsewhere, before all who wait; the rest ends."""
        decisions: list[Decision] = []
        ended = []
        for id in self.dispatch.running_on(agent.link):
            exchange = self._exchanges[id]
            exchange.num_agents_lost += 1
            if (error := _loss(exchange)) is None:
                self._unassign(exchange, now)
            else:
                self._forget(exchange)
                ended.append(id)
                decisions += exchange.failed(error, now)
        return [*decisions, *self._start(self.dispatch.agent_left(agent.link, ended), now)]

    # ---- as time goes by

    def due(self, now: float) -> list[Decision]:
        """Those whose deadline has come end; first those that wait, as they must not start now."""
        decisions: list[Decision] = []
        due = [self._exchanges[id] for id in self._alarms.due(now)]
        for exchange in sorted(due, key=lambda e: e.link is not None):
            if (error := exchange.overdue(now)) is not None:
                decisions += self._give_up(exchange, error, now)
        return decisions

    def end_all(self, error: RequestError, now: float) -> list[Decision]:
        """Nothing goes on; first those that wait, so that no slot that frees starts them."""
        decisions: list[Decision] = []
        for exchange in sorted(self._exchanges.values(), key=lambda e: e.link is not None):
            decisions += self._give_up(exchange, error, now)
        return decisions

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """Those that wait and that no connected agent can serve do not go on waiting."""
        decisions: list[Decision] = []
        for id in self.dispatch.stranded():
            decisions += self.fail(self._exchanges[id], error, now)
        return decisions

    # ---- inside

    def _start(self, assigned: Iterable[Assign], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for assign in assigned:
            exchange = self._exchanges[assign.request]
            exchange.assigned(assign.link, self._roster[assign.link].name, now)
            self._alarms.arm(exchange.id)
            start = Start(id=exchange.id, request=exchange.request)
            decisions.append(self._roster.send(assign.link, start, now))
        return decisions

    def _unassign(self, exchange: Exchange, now: float) -> None:
        exchange.came_back(now)
        self._alarms.arm(exchange.id)

    def _stop(self, exchange: Exchange, now: float) -> list[Decision]:
        """Tell the agent, if there is one, and only once."""
        if exchange.link is None or exchange.is_cancelling:
            return []
        exchange.is_cancelling = True
        return [self._roster.send(exchange.link, Cancel(id=exchange.id), now)]

    def _give_up(self, exchange: Exchange, error: RequestError, now: float) -> list[Decision]:
        return [*self._stop(exchange, now), *self.fail(exchange, error, now)]

    def _end(self, exchange: Exchange, last: list[Decision], now: float) -> list[Decision]:
        """It has ended with `last`; its slot serves the next."""
        self._forget(exchange)
        return [*last, *self._start(self.dispatch.ended(exchange.id), now)]

    def _forget(self, exchange: Exchange) -> None:
        del self._exchanges[exchange.id]
        self._alarms.disarm(exchange.id)

    def _agent_id(self, exchange: Exchange) -> AgentId | None:
        return None if exchange.link is None else self._roster[exchange.link].hello.agent_id

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.dispatch.check_integrity()
        self._alarms.check_integrity()
        for id, exchange in self._exchanges.items():
            exchange.check_integrity()
            if id not in self._alarms or exchange.is_ended:
                raise RuntimeError(f"{id} has no deadline, or has ended")
            if exchange.link != self.dispatch.link_of(id):
                raise RuntimeError(f"{id} is not where dispatch has it")
        if len(self._exchanges) != self.dispatch.num_waiting + self.dispatch.num_running:
            raise RuntimeError("dispatch has a request that has ended")


def refuse(exchange: Exchange, error: RequestError, now: float) -> list[Decision]:
    """Turn away a newcomer that was never accepted."""
    return [Refuse(exchange.id, error), exchange.refused(error, now)]


def _loss(exchange: Exchange) -> RequestError | None:
    """The error with which a lost agent's request ends; `None` if it can go elsewhere."""
    if exchange.is_cancelling:
        return Cancelled("cancelled; the agent was lost before it answered")
    if exchange.has_streamed:
        return AgentLost(f"the agent {exchange.agent} was lost in the middle of the answer")
    if exchange.num_agents_lost >= MAX_AGENTS_LOST:
        return AgentLost(f"{MAX_AGENTS_LOST} agents, one after the other, were lost with this")
    return None
