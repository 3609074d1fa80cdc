"""What agents generate and answer: each item of a step to its request, each reply to its query.

What an agent sends about a request that it does not have (any more) is ignored and counted.
"""

from collections.abc import Iterable
from typing import assert_never

from ....shared.errors import ShuttingDown, from_wire
from ....shared.inference import RequestId
from ....shared.messages import (
    Busy,
    Called,
    CallStarted,
    Ended,
    Item,
    Noticed,
    Piece,
    PromptRead,
    Refused,
    Reply,
)
from ..decisions import Decision
from ..registry import Agent
from ..requests.request_lifecycle import RequestLifecycle
from .state import FleetState

NoPiece = CallStarted | Called | Noticed | PromptRead | Ended | Refused | Busy


class AgentOutput:
    """Every method returns decisions, to be carried out in their order."""

    def __init__(self, state: FleetState) -> None:
        self._state = state

    def items(self, agent: Agent, items: Iterable[Item], now: float) -> list[Decision]:
        """A step's items in their order; those in a row that are pieces count as one change."""
        decisions: list[Decision] = []
        pieces: list[tuple[RequestLifecycle, Piece]] = []
        for item in items:
            lifecycle = self._running_on(agent, item.id)
            if lifecycle is None:
                self._state.items_ignored += 1
            elif isinstance(item, Piece):
                pieces.append((lifecycle, item))
            else:
                if pieces:
                    decisions += self._pieces(agent, pieces, now)
                    pieces = []
                decisions += self._item(agent, lifecycle, item, now)
        if pieces:
            decisions += self._pieces(agent, pieces, now)
        return decisions

    def reply(self, agent: Agent, reply: Reply, now: float) -> list[Decision]:
        """A query's answer."""
        decisions = self._state.dispatcher.replied(agent, reply, now)
        if decisions is None:
            self._state.items_ignored += 1
            return []
        return decisions

    def _running_on(self, agent: Agent, id: RequestId) -> RequestLifecycle | None:
        lifecycle = self._state.requests.get(id)
        return lifecycle if lifecycle is not None and lifecycle.link == agent.link else None

    def _pieces(
        self, agent: Agent, pieces: list[tuple[RequestLifecycle, Piece]], now: float
    ) -> list[Decision]:
        num_tokens = sum(len(piece.tokens) for _, piece in pieces)
        agent.num_tokens += num_tokens
        self._state.tokens_total += num_tokens
        self._state.registry.touch(agent.link)
        return self._state.requests.pieces(pieces, now)

    def _item(
        self, agent: Agent, lifecycle: RequestLifecycle, item: NoPiece, now: float
    ) -> Iterable[Decision]:
        requests = self._state.requests
        match item:
            case CallStarted() | Called() | Noticed() | PromptRead():
                return requests.received(lifecycle, item, now)
            case Ended():
                return requests.done(lifecycle, item, now)
            case Refused() if item.error.code != ShuttingDown.code or lifecycle.has_streamed:
                return requests.fail(lifecycle, from_wire(item.error), now)
            case Refused() | Busy():
                self._state.registry.rests(agent, now)
                return requests.hand_back(lifecycle, now)
            case _:
                assert_never(item)
