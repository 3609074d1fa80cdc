"""The queries that have not ended: which agents answer their parts, and what follows for clients.

Queries take no slots: each kind has a lane of its own, with so many parts an agent. A part whose
agent is lost, or would not answer because it is going, is put to another one.

Invariants: every accepted query ends exactly once, with all results or one error; a query is here
exactly when its lane has it, and its alarm is armed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    QueueFull,
    RequestError,
    ShuttingDown,
    from_wire,
)
from ...shared.inference import RequestId
from ...shared.messages import Ask, Reply, Withdraw
from ...shared.queries import Declined, Query, Result
from .abilities import Abilities
from .alarms import Alarms
from .asked import Asked, Kind, Question, fits
from .decisions import Decision, Refuse, Settle
from .dispatch import RETRY_AFTER
from .lane import Hand, Lane, Part
from .limits import Limits
from .roster import Agent, Roster
from .view import RequestView

PARTS_PER_AGENT: dict[Kind, int] = {"text": 16, "embed": 2, "rank": 2}
"""Parts that an agent has at once: enough that it never waits for the next."""

MAX_AGENTS_LOST = 3
"""Agents that may be lost with a query's parts before it is taken for the cause, and ends."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """A query that is over, and the last that is to be done about it."""

    asked: Asked
    last: tuple[Decision, ...]


class Desk:
    """Every method returns what is to be done about it, in that order."""

    def __init__(self, limits: Limits, roster: Roster) -> None:
        self.abilities = Abilities()
        self._limits = limits
        self._roster = roster
        self._lanes = {kind: Lane(most) for kind, most in PARTS_PER_AGENT.items()}
        self._queries: dict[RequestId, Asked] = {}
        self._alarms: Alarms[RequestId] = Alarms(lambda id: self._queries[id].deadline)

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
        return sum(lane.num_pending for lane in self._lanes.values())

    @property
    def num_asked(self) -> int:
        """Parts that agents have."""
        return sum(lane.num_asked for lane in self._lanes.values())

    def next_deadline(self) -> float | None:
        """Not later than the first query's deadline."""
        return self._alarms.next()

    def views(self, now: float) -> list[RequestView]:
        """All of them, oldest first."""
        return [asked.view(now) for asked in self._queries.values()]

    # ---- as clients wish

    def open(self, id: RequestId, question: Question, now: float) -> list[Decision]:
        """Accept or refuse a newcomer."""
        asked = Asked(id, question, self._limits, now)
        if (error := self._refusal(question)) is not None:
            return self.refuse(asked, error, now)
        self._queries[id] = asked
        self._alarms.arm(id)
        lane = self._lanes[question.kind]
        return self._hand_out(lane.opened(id, question.model, len(question.parts)), now)

    def refuse(self, asked: Asked, error: RequestError, now: float) -> list[Decision]:
        """Turn away a newcomer that was never accepted."""
        return [Refuse(asked.id, error), asked.finish(error.code, now, error)]

    def close(self, id: RequestId, now: float) -> list[Decision]:
        """Its client has gone."""
        asked = self._queries[id]
        return self._end([_Ending(asked, (asked.finish("client_gone", now),))], now)

    def cancel(self, ids: Iterable[RequestId], now: float) -> list[Decision]:
        """End these."""
        error = Cancelled("cancelled before it was answered")
        return self._fail((self._queries[id] for id in ids), error, now)

    # ---- as agents say

    def replied(self, agent: Agent, reply: Reply, now: float) -> list[Decision] | None:
        """A part was answered; `None`: the agent does not have it (any more)."""
        part = _part(reply.id)
        asked = None if part is None else self._queries.get(part.query)
        if part is None or asked is None:
            return None
        lane = self._lanes[asked.question.kind]
        if lane.holder(part) != agent.link:
            return None
        if _is_for_another(reply.result):
            return self._came_back(agent, part, now)
        asked.results[part.number] = reply.result
        if (error := _fault(asked.question.parts[part.number], reply.result)) is not None:
            return self._fail([asked], error, now)
        if not asked.is_complete:
            return self._hand_out(lane.done(part), now)
        return self._end([_Ending(asked, (asked.answer(), asked.finish("answered", now)))], now)

    # ---- as agents come and go

    def agent_changed(self, agent: Agent, now: float) -> list[Decision]:
        """An agent is here, or has another model, or takes work again, or no longer."""
        self.abilities.changed(agent.link, agent.model)
        tasks = agent.model.tasks if agent.model else ()
        decisions: list[Decision] = []
        for kind, lane in self._lanes.items():
            is_able = agent.is_accepting and (kind == "text" or kind in tasks)
            hands = lane.agent_changed(agent.link, agent.served if is_able else None)
            decisions += self._hand_out(hands, now)
        return decisions

    def agent_left(self, agent: Agent, now: float) -> list[Decision]:
        """What it had goes elsewhere."""
        self.abilities.left(agent.link)
        decisions: list[Decision] = []
        for lane in self._lanes.values():
            lost, hands = lane.agent_left(agent.link)
            decisions += self._hand_out(hands, now)
            for id in dict.fromkeys(part.query for part in lost):
                self._look_for_agent(self._queries[id], now)
                decisions += self._lost_agent(self._queries[id], now)
        return decisions

    # ---- as time goes by

    def due(self, now: float) -> list[Decision]:
        """Those whose deadline has come end."""
        decisions: list[Decision] = []
        for id in self._alarms.due(now):
            asked = self._queries[id]
            if (error := asked.overdue(now)) is not None:
                decisions += self._fail([asked], error, now)
        return decisions

    def end_all(self, error: RequestError, now: float) -> list[Decision]:
        """Nothing goes on."""
        return self._fail(list(self._queries.values()), error, now)

    def end_stranded(self, error: RequestError, now: float) -> list[Decision]:
        """Those with a part that waits and that no connected agent can answer do not go on."""
        stranded = [self._queries[id] for lane in self._lanes.values() for id in lane.stranded()]
        return self._fail(stranded, error, now)

    # ---- inside

    def _refusal(self, question: Question) -> RequestError | None:
        refusal = self.abilities.refusal(question.task, question.model)
        lane = self._lanes[question.kind]
        if refusal is not None or lane.has_room(question.model):
            return refusal
        if lane.num_waiting < self._limits.max_buffered_requests:
            return None
        return QueueFull(
            f"{lane.num_waiting} queries are waiting, as many as may", retry_after=RETRY_AFTER
        )

    def _lost_agent(self, asked: Asked, now: float) -> list[Decision]:
        asked.num_agents_lost += 1
        if asked.num_agents_lost < MAX_AGENTS_LOST:
            return []
        error = AgentLost(f"{MAX_AGENTS_LOST} agents, one after the other, were lost with this")
        return self._fail([asked], error, now)

    def _came_back(self, agent: Agent, part: Part, now: float) -> list[Decision]:
        """The agent would not answer: another one may, or the same after a rest."""
        self._roster.rests(agent, now)
        asked = self._queries[part.query]
        hands = self._lanes[asked.question.kind].came_back(part)
        self._look_for_agent(asked, now)
        return self._hand_out(hands, now)

    def _look_for_agent(self, asked: Asked, now: float) -> None:
        """It waits again, unless an agent has a part of it."""
        if not self._lanes[asked.question.kind].is_asked(asked.id):
            asked.waits(now)
            self._alarms.arm(asked.id)

    def _fail(self, ended: Iterable[Asked], error: RequestError, now: float) -> list[Decision]:
        return self._end(
            [
                _Ending(asked, (Settle(asked.id, error), asked.finish(error.code, now, error)))
                for asked in ended
            ],
            now,
        )

    def _end(self, endings: Sequence[_Ending], now: float) -> list[Decision]:
        """These have ended; what agents still have of them is withdrawn, and none is asked more."""
        decisions: list[Decision] = [each for ending in endings for each in ending.last]
        for asked in (ending.asked for ending in endings):
            del self._queries[asked.id]
            self._alarms.disarm(asked.id)
        for kind, lane in self._lanes.items():
            ended = {
                each.asked.id: each.asked for each in endings if each.asked.question.kind == kind
            }
            withdrawn, hands = lane.closed(ended)
            decisions += [
                self._roster.send(hand.link, Withdraw(id=_name(hand.part)), now)
                for hand in withdrawn
                if hand.part.number not in ended[hand.part.query].results
            ]
            decisions += self._hand_out(hands, now)
        return decisions

    def _hand_out(self, hands: Iterable[Hand], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for hand in hands:
            asked = self._queries[hand.part.query]
            asked.begins(self._roster[hand.link].name, now)
            ask = Ask(id=_name(hand.part), query=asked.question.parts[hand.part.number])
            decisions.append(self._roster.send(hand.link, ask, now))
        return decisions

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._alarms.check_integrity()
        for lane in self._lanes.values():
            lane.check_integrity()
        for id, asked in self._queries.items():
            if id not in self._alarms or asked.is_complete:
                raise RuntimeError(f"{id} has no deadline, or has ended")


def _name(part: Part) -> RequestId:
    return RequestId(f"{part.query}.{part.number}")


def _part(name: RequestId) -> Part | None:
    query, dot, number = name.rpartition(".")
    is_number = dot and number.isascii() and number.isdigit() and len(number) < 10
    return Part(RequestId(query), int(number)) if is_number else None


def _is_for_another(result: Result) -> bool:
    """Whether the agent would not answer, and another one can."""
    codes = (ShuttingDown.code, QueueFull.code)
    return isinstance(result, Declined) and result.error.code in codes


def _fault(query: Query, result: Result) -> RequestError | None:
    """Why `result` is none, if it is none."""
    if isinstance(result, Declined):
        return from_wire(result.error)
    if not fits(query, result):
        return EngineFailed("the agent's answer does not fit the question")
    return None
