"""What agents generate and answer: each item of a step to its request, each reply to its query.

What an agent sends about a request that it does not have (any more) is ignored and counted.
"""

from collections.abc import Iterable
from typing import assert_never

from ....shared.errors import AgentLost, Cancelled, ShuttingDown, from_wire
from ....shared.inference import Token
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
from ..requests.requests import Gain
from .state import FleetState

_AGENTS_OWN = (ShuttingDown.code, Cancelled.code, AgentLost.code)
"""Codes of errors that say nothing of the request."""

NoPiece = CallStarted | Called | Noticed | PromptRead | Ended | Refused | Busy


class AgentOutput:
    """Every method returns decisions, to be carried out in their order."""

    def __init__(self, state: FleetState) -> None:
        self._state = state

    def items(self, agent: Agent, items: Iterable[Item], now: float) -> list[Decision]:
        """A step's items in their order.

        Those in a row that are pieces, and of the same model and adapter, count as one change.
        """
        get, link = self._state.requests.get, agent.link
        decisions: list[Decision] = []
        gains: list[Gain] = []
        for item in items:
            lifecycle = get(item.id)
            if lifecycle is None or lifecycle.link != link:
                self._state.items_ignored += 1
            elif lifecycle.drops_rest:
                decisions += self._left(lifecycle, item, now)
            elif isinstance(item, Piece):
                if gains and gains[-1][0].served_as != lifecycle.served_as:
                    decisions += self._gained(agent, gains, now)
                    gains = []
                token = Token(item.text, item.kind, item.tokens, item.log_probs or ())
                gains.append((lifecycle, token))
            else:
                if gains:
                    decisions += self._gained(agent, gains, now)
                    gains = []
                decisions += self._item(agent, lifecycle, item, now)
        if gains:
            decisions += self._gained(agent, gains, now)
        return decisions

    def reply(self, agent: Agent, reply: Reply, now: float) -> list[Decision]:
        """A query's answer."""
        decisions = self._state.dispatcher.replied(agent, reply, now)
        if decisions is None:
            self._state.items_ignored += 1
            return []
        return decisions

    def _gained(self, agent: Agent, gains: list[Gain], now: float) -> list[Decision]:
        decision, firsts = self._state.requests.gained(gains, now)
        self._state.registry.generated(agent, decision.num_tokens)
        self._state.tokens_total += decision.num_tokens
        return [decision, *firsts]

    def _item(
        self, agent: Agent, lifecycle: RequestLifecycle, item: NoPiece, now: float
    ) -> Iterable[Decision]:
        requests = self._state.requests
        match item:
            case CallStarted() | Called() | Noticed() | PromptRead():
                return requests.received(lifecycle, item, now)
            case _ if lifecycle.is_leaving:
                return self._left(lifecycle, item, now)
            case Ended():
                return requests.done(lifecycle, item, now)
            case Refused() if item.error.code == AgentLost.code:
                self._state.registry.rests(agent, now)
                return requests.lost_server(lifecycle, from_wire(item.error), now)
            case Refused() if item.error.code != ShuttingDown.code:
                return requests.fail(lifecycle, from_wire(item.error), now)
            case Refused():
                self._state.registry.rests(agent, now)
                return requests.give_back(lifecycle, from_wire(item.error), now)
            case Busy():
                self._state.registry.rests(agent, now)
                return requests.hand_back(lifecycle, now)
            case _:
                assert_never(item)

    def _left(self, lifecycle: RequestLifecycle, item: Item, now: float) -> Iterable[Decision]:
        """It was told to stop. Its end counts only where all before it was delivered.

        An error of the request's own stays one.
        """
        requests = self._state.requests
        match item:
            case Ended(finish_reason="cancelled") if lifecycle.is_cancelling:
                return requests.done(lifecycle, item, now)
            case Ended(finish_reason=reason) if reason != "cancelled" and not lifecycle.drops_rest:
                return requests.done(lifecycle, item, now)
            case Refused(error=error) if error.code not in _AGENTS_OWN:
                return requests.fail(lifecycle, from_wire(error), now)
            case Ended() | Refused() | Busy():
                return requests.let_go(lifecycle, now)
            case _:
                return ()
