"""The events of one request, for the one task that writes them to the client.

Invariants: what is read is what was put, in order, with neighbouring tokens of one kind merged
where the reader is slower than the agent; what waits to be read is one answer's text at most, and
as few events as it has changes of kind; nothing is put after the end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, groupby
from types import TracebackType
from typing import Self

from ....shared.inference import Done, Event, Failed, RequestId, Token

MAX_PENDING = 32
"""Events that may wait for the reader before tokens are merged."""


class Stream:
    """Yields any number of other events, then one `Done` or `Failed`, then stops.

    One task reads it, in a `with`: leaving that before the end cancels the request.
    """

    def __init__(self, id: RequestId, on_close: Callable[[RequestId], None]) -> None:
        """`on_close` is called once, and only if the reader goes before the end has come."""
        self.id = id
        self._on_close = on_close
        self._pending: deque[Event] = deque()
        self._merge_at = MAX_PENDING
        self._has_ended = False
        self._is_closed = False
        self._reader: asyncio.Future[None] | None = None

    @property
    def num_pending(self) -> int:
        """How many events wait for the reader."""
        return len(self._pending)

    def put(self, event: Event) -> None:
        """Another event. Raises `RuntimeError` after the end."""
        if self._has_ended:
            raise RuntimeError(f"{event} came after the end of request {self.id}")
        self._has_ended = isinstance(event, Done | Failed)
        if not self._is_closed:
            self._pending.append(event)
            if len(self._pending) >= self._merge_at:
                self._merge()
        self._wake()

    def close(self) -> None:
        """The reader is gone. Does nothing after the end or a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pending.clear()
        self._wake()
        if not self._has_ended:
            self._on_close(self.id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._pending:
            if self._has_ended or self._is_closed:
                raise StopAsyncIteration
            await self._wait()
        event = self._pending.popleft()
        if isinstance(event, Token) and self._pending:
            return self._with_followers(event)
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _wait(self) -> None:
        if self._reader is not None:
            raise RuntimeError(f"two tasks read request {self.id}")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _with_followers(self, token: Token) -> Token:
        """`token` with the tokens of its kind that wait right behind it."""
        tokens = [token]
        while self._pending:
            follower = self._pending[0]
            if not isinstance(follower, Token) or follower.kind != token.kind:
                break
            tokens.append(follower)
            self._pending.popleft()
        return _merged(tokens)

    def _merge(self) -> None:
        """Merge what waits. Twice of what is left may wait next, so that a token's cost is even."""
        kinds = groupby(self._pending, key=lambda event: getattr(event, "kind", None))
        self._pending = deque(chain.from_iterable(_run(list(events)) for _, events in kinds))
        self._merge_at = max(MAX_PENDING, 2 * len(self._pending))


def _run(events: list[Event]) -> Iterable[Event]:
    tokens = [event for event in events if isinstance(event, Token)]
    return [_merged(tokens)] if tokens else events


def _merged(tokens: list[Token]) -> Token:
    text = "".join(token.text for token in tokens)
    ids = tuple(chain.from_iterable(token.tokens for token in tokens))
    log_probs = tuple(chain.from_iterable(token.log_probs for token in tokens))
    return Token(text, tokens[0].kind, ids, log_probs)
