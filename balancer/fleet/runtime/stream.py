"""The event stream of one request, and the handle of one query.

A task reads the events one by one, or has them pushed. A pushed event is handled where it is put,
without a switch to the reading task, as long as the client reads fast enough.

Invariants: a reader gets the events in the order in which they were put; if the client is slower
than the agent, neighbouring tokens of one kind are merged; no event is put after the end.

Waiting events use memory, and so does a whole answer that the reader keeps until its end. Both
count in the caller's share of the memory of all answers. If the share is used up, the answer ends
with `overloaded`. If the answer is larger than any share, it ends with `request_too_large`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, groupby
from sys import getsizeof
from typing import Protocol, Self

from ....shared.errors import Overloaded, RequestError, RequestTooLarge
from ....shared.inference import Done, Event, Failed, Reading, RequestId, Token, Waiting
from ....shared.queries import Result
from ..caller import Account
from ..footprint import RETRY_AFTER
from ..shares import Holding

MAX_PENDING = 32
"""The maximum waiting events before tokens are merged."""

WAITING_LOG_PROB = 160
"""The bytes of one candidate's log-probability while it waits for the reader."""

PACKED_LOG_PROB = 96
"""The bytes of one candidate's log-probability that the reader packs, and then writes as JSON."""

LISTED_LOG_PROB = 640
"""The bytes of one candidate's log-probability that the reader keeps as a JSON object."""

Write = Callable[[Event], bool]
"""Writes one event to a client without waiting. Returns whether the client can take more."""


class Sink(Protocol):
    """Takes the events of one request."""

    @property
    def id(self) -> RequestId: ...

    def put(self, event: Event, /) -> None:
        """Take one more event. The last event is `Done` or `Failed`. Must not raise."""


class Stream:
    """The events of one request, which end with one `Done` or `Failed`.

    One task reads the stream in a `with` block. Leaving the block before the end cancels the
    request.
    """

    __slots__ = (
        "_error",
        "_has_ended",
        "_held",
        "_is_closed",
        "_is_cut",
        "_kept_log_prob",
        "_merge_at",
        "_merges",
        "_on_close",
        "_pending",
        "_reader",
        "_write",
        "created_at",
        "id",
        "model",
    )

    def __init__(
        self,
        id: RequestId,
        on_close: Callable[[RequestId], None],
        *,
        merges: bool = True,
        created_at: float | None = None,
        model: str = "",
        held: Holding[Account] | None = None,
        kept_log_prob: int = 0,
    ) -> None:
        """Make a stream. `on_close` is called once if the reader leaves before the end.

        Waiting events count in `held`, if given. If the reader keeps the whole answer,
        `kept_log_prob` is the size of a kept log-probability in bytes; otherwise it is 0. If
        `merges` is false, the reader gets every event as it was put.

        `created_at` is in seconds since 1970; without a value the stream uses the present time.
        `model` is the model name in answers to requests without a model name.
        """
        self.id = id
        self.created_at = time.time() if created_at is None else created_at
        self.model = model
        self._held = held
        self._kept_log_prob = kept_log_prob
        self._is_cut = False
        self._merges = merges
        self._on_close = on_close
        self._pending: deque[Event] = deque()
        self._merge_at = MAX_PENDING
        self._has_ended = False
        self._is_closed = False
        self._reader: asyncio.Future[None] | None = None
        self._write: Write | None = None
        self._error: Exception | None = None

    @property
    def num_pending(self) -> int:
        """The number of waiting events."""
        return len(self._pending)

    def put(self, event: Event) -> None:
        """Add `event`. Raises `RuntimeError` after the end."""
        if self._is_cut:
            return
        if self._kept_log_prob and not self._counts(event, self._kept_log_prob):
            return
        if self._write is None or not isinstance(event, Token):
            self._keep(event)
            return
        try:
            if self._write(event):
                return
        except Exception as error:
            # The reader's task raises the error, which ends its request. The caller of `put` goes
            # on: it has tokens of other requests to put as well.
            self._error = error
        self._write = None
        self._wake()

    def _counts(self, event: Event, log_prob: int) -> bool:
        """Count the memory of `event`.

        Returns whether the memory is within the limits. If not, the answer ends.
        """
        if self._held is None or self._is_closed or not isinstance(event, Token):
            return True
        num = sum(1 + len(each.top) for each in event.log_probs)
        size = getsizeof(event.text) + log_prob * num
        if self._held.claim(size):
            return True
        if self._held.may_ever(size):
            self._cut(Overloaded(_NO_ROOM, retry_after=RETRY_AFTER))
        else:  # trying again would end in the same way
            self._cut(RequestTooLarge(_TOO_LARGE))
        return False

    def _cut(self, error: RequestError) -> None:
        """End the answer with `error`."""
        self._pending.clear()
        self._keep(Failed(error))
        self._is_cut = True
        # Not at once: the runtime is in the middle of delivering.
        asyncio.get_running_loop().call_soon(self._on_close, self.id)

    def _keep(self, event: Event) -> None:
        if self._has_ended:
            raise RuntimeError(f"{event} came after the end of request {self.id}")
        if not self._kept_log_prob and not self._counts(event, WAITING_LOG_PROB):
            return
        # The reader's task writes this event, and those that come until then, in order.
        self._write = None
        self._has_ended = isinstance(event, (Done, Failed))
        if not self._is_closed:
            if isinstance(event, (Waiting, Reading)) and self._ends_waiting:
                self._pending.pop()  # the reader is slow, and this is newer
            self._pending.append(event)
            if self._merges and len(self._pending) >= self._merge_at:
                self._merge()
        self._wake()

    @property
    def _ends_waiting(self) -> bool:
        """Return whether a newer event about waiting replaces the last waiting event."""
        return bool(self._pending) and isinstance(self._pending[-1], Waiting | Reading)

    def close(self) -> None:
        """Note that the reader has left. Does nothing after the end or a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._write = None
        self._pending.clear()
        self._wake()
        if self._held is not None:
            self._held.give_back()
        if not self._has_ended:
            self._on_close(self.id)

    async def push(self, write: Write, drained: Callable[[], Awaitable[None]]) -> None:
        """Pass each event to `write` as soon as the event is put, and return after the end.

        If `write` returns false, events wait and are merged until `drained` returns. If `write`
        raises an exception, this method raises the exception and stops pushing; `put` never raises
        the exception.
        """
        while True:
            while self._pending:
                if not write(self._next()):
                    await drained()
            if self._has_ended or self._is_closed:
                return
            self._write = write
            try:
                await self._wait()
            finally:
                self._write = None
            if self._error is not None:
                raise self._error
            await drained()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._pending:
            if self._has_ended or self._is_closed:
                raise StopAsyncIteration
            await self._wait()
        return self._next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def _next(self) -> Event:
        """Return the next event. If it is a token, merge it with the tokens that follow."""
        event = self._pending.popleft()
        if self._merges and isinstance(event, Token) and self._pending:
            event = self._with_followers(event)
        if self._held is not None and not (self._pending or self._kept_log_prob):
            self._held.give_back()
        return event

    def _with_followers(self, token: Token) -> Token:
        """Return `token` merged with the waiting tokens of its kind right after it."""
        tokens = [token]
        while self._pending:
            follower = self._pending[0]
            if not isinstance(follower, Token) or follower.kind != token.kind:
                break
            tokens.append(follower)
            self._pending.popleft()
        return token if len(tokens) == 1 else _merged(tokens)

    def _merge(self) -> None:
        """Merge the waiting events.

        The next merge comes when at least twice as many events wait, so the cost per token is
        constant.
        """
        self._pending = deque(merged(self._pending))
        self._merge_at = max(MAX_PENDING, 2 * len(self._pending))


def merged(events: Iterable[Event]) -> Iterable[Event]:
    """Return `events` with neighbouring tokens of one kind merged."""
    kinds = groupby(events, key=lambda event: getattr(event, "kind", None))
    return chain.from_iterable(_run(list(each)) for _, each in kinds)


_NO_ROOM = (
    "unread and incomplete answers of all callers, or of this caller, use too much memory; "
    "stream them, or ask for fewer `top_logprobs`"
)
_TOO_LARGE = (
    "the answer needs more memory than one caller may use; stream it, or ask for fewer "
    "`top_logprobs`"
)


def _run(events: list[Event]) -> Iterable[Event]:
    tokens = [event for event in events if isinstance(event, Token)]
    return [_merged(tokens)] if tokens else events


def _merged(tokens: list[Token]) -> Token:
    text = "".join(token.text for token in tokens)
    ids = tuple(chain.from_iterable(token.tokens for token in tokens))
    log_probs = tuple(chain.from_iterable(token.log_probs for token in tokens))
    return Token(text, tokens[0].kind, ids, log_probs)


Outcome = tuple[Result, ...] | RequestError


class QueryHandle:
    """A client's handle of one query. It returns all results at once.

    One task awaits the results in a `with` block. Leaving the block before the end withdraws the
    query.

    Invariant: the handle is settled at most once.
    """

    def __init__(self, id: RequestId, on_close: Callable[[RequestId], None]) -> None:
        """Make a handle. `on_close` is called once if the reader leaves before the end."""
        self.id = id
        self._on_close = on_close
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome. Raises `asyncio.InvalidStateError` if the outcome was already set."""
        if not self._is_closed:
            self._outcome.set_result(outcome)

    async def results(self) -> tuple[Result, ...]:
        """Wait for the results, and return them in the order of parts. Raises `RequestError`."""
        outcome = await asyncio.shield(self._outcome)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Note that the reader has left. Does nothing after the end or a second time."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._outcome.done():
            self._outcome.cancel()
            self._on_close(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
