"""What agents generate and answer: each item of a step to its request, each reply to its query.

What an agent sends about a request that it does not have (any more) is ignored and counted. What
cannot be true of one that it has is a `BadMessage`, and nothing of its message counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from ....shared.errors import (
    AgentLost,
    Cancelled,
    EngineFailed,
    RequestError,
    ShuttingDown,
    WireError,
    from_agent,
)
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

    def items(self, agent: Agent, items: Sequence[Item], now: float) -> Iterator[Decision]:
        """A step's items in their order. Raises `BadMessage` before the first decision.

        Those in a row that are pieces, and of the same model and adapter, count as one change.
        """
        get, link = self._state.requests.get, agent.link
        for item in items:
            lifecycle = get(item.id)
            if lifecycle is not None and lifecycle.link == link:
                lifecycle.claim.check(item)
        gains: list[Gain] = []
        for item in items:
            lifecycle = get(item.id)
            if lifecycle is None or lifecycle.link != link:
                self._state.items_ignored += 1
                if lifecycle is not None and isinstance(item, Ended | Refused | Busy):
                    lifecycle.deserted.discard(link)  # it has the request no more
            elif lifecycle.drops_rest:
                yield from self._left(lifecycle, item, now)
            elif isinstance(item, Piece):
                if gains and gains[-1][0].served_as != lifecycle.served_as:
                    yield from self._gained(agent, gains, now)
                    gains = []
                token = Token(item.text, item.kind, item.tokens, item.log_probs or ())
                gains.append((lifecycle, token))
            else:
                if gains:
                    yield from self._gained(agent, gains, now)
                    gains = []
                yield from self._item(agent, lifecycle, item, now)
        if gains:
            yield from self._gained(agent, gains, now)

    def reply(self, agent: Agent, reply: Reply, now: float) -> list[Decision]:
        """A query's answer."""
        decisions = self._state.dispatcher.replied(agent, reply, now)
        if decisions is None:
            self._state.items_ignored += 1
            return []
        return decisions

    def _gained(self, agent: Agent, gains: list[Gain], now: float) -> list[Decision]:
        decision, firsts, num_begun = self._state.requests.gained(gains, now)
        self._state.registry.generated(agent, decision.num_tokens)
        self._state.tokens_total += decision.num_tokens
        agent.spoke_at = now
        if not num_begun:
            return [decision, *firsts]
        return [decision, *firsts, *self._state.requests.answered(agent, now, num_begun)]

    def _item(
        self, agent: Agent, lifecycle: RequestLifecycle, item: NoPiece, now: float
    ) -> Iterable[Decision]:
        requests = self._state.requests
        agent.spoke_at = now
        was_streaming = lifecycle.is_streaming
        match item:
            case CallStarted() | Called() | Noticed() | PromptRead():
                received = requests.received(lifecycle, item, now)
                if was_streaming or not lifecycle.is_streaming:
                    return received
                return [*received, *requests.answered(agent, now)]
            case _ if lifecycle.is_leaving:
                return self._left(lifecycle, item, now)
            case Ended():
                done = requests.done(lifecycle, item, now)
                if was_streaming or item.finish_reason == "cancelled":
                    return done
                return [*done, *requests.answered(agent, now)]
            case Refused() if item.error.code == AgentLost.code:
                self._state.registry.rests(agent, now)
                return requests.lost_server(lifecycle, from_agent(item.error), now)
            case Refused() if item.error.code != ShuttingDown.code:
                error = _error(lifecycle, item.error)
                is_broken = isinstance(error, EngineFailed)
                disappointed = requests.disappointed(agent, now) if is_broken else []
                return [*disappointed, *requests.fail(lifecycle, error, now)]
            case Refused():
                self._state.registry.rests(agent, now)
                return requests.give_back(lifecycle, from_agent(item.error), now)
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
                return requests.fail(lifecycle, _error(lifecycle, error), now)
            case Ended() | Refused() | Busy():
                return requests.let_go(lifecycle, now)
            case _:
                return ()


def _error(lifecycle: RequestLifecycle, wire: WireError) -> RequestError:
    """What its client hears. Only who cancels hears that it was cancelled."""
    if wire.code == Cancelled.code and not lifecycle.is_cancelling:
        return EngineFailed(wire.message)
    return from_agent(wire)
