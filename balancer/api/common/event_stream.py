"""Renders one request's events in an API's format: named server-sent events, or one object.

For APIs whose streamed events add up to the answer that a client gets without streaming.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from pydantic_core import to_json

from ....shared.errors import RequestError
from ....shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    Reading,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from ..transport.text_frame import TextFrame
from ..transport.waiting import comment
from .rendering import Rendering

Json = dict[str, Any]


class EventRenderer(Rendering):
    """Turns neutral events into the events of an API; each has a `type`, which is also its name.

    Some events are not rendered: notices, the end of a tool call (its arguments were already
    sent), and tokens without visible text. Before the first token only comments are rendered,
    because clients retry after an HTTP status but not after an error event.
    """

    _has_begun = False

    def render(self, event: Event, _number: int = 0, /) -> bytes:
        """Return the bytes for `event`.

        The first rendered event is preceded by the opening events.
        """
        if isinstance(event, Waiting | Reading):
            return comment(event)
        if self._has_begun or isinstance(event, Begun | Notice):
            return self.write(event)
        self._has_begun = True
        return frames(self.begin()) + self.write(event)

    @abstractmethod
    def begin(self) -> list[Json]:
        """Return the opening events, which come before any text."""

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
        """Return the API's events for `event`."""
        return list(self._rendered(event))

    def write(self, event: Event) -> bytes:
        """Return the API's events for `event` as server-sent events, without opening events."""
        if isinstance(event, Token) and (written := self._go_on(event)) is not None:
            return written
        return frames(self.take(event))

    def _rendered(self, event: Event) -> Iterator[Json]:
        match event:
            case Token():
                if event.text:
                    yield from self._said(event)
            case ToolCallStarted():
                yield from self._called(event)
            case Begun():
                self._begun(event)
            case Waiting() | Reading() | ToolCall() | Notice():
                return
            case Done():
                yield from self._done(event)
            case Failed():
                yield from self._failed(event.error)
            case _:
                assert_never(event)

    @abstractmethod
    def _begun(self, begun: Begun) -> None:
        """Record the token counts of the prompt, which renders no event."""

    @abstractmethod
    def _go_on(self, token: Token) -> bytes | None:
        """Return the frame of a token that only extends the open item; `None` in any other case.

        Nearly all tokens are of this kind, so this is the hot path: see `Deltas`.
        """

    @abstractmethod
    def _said(self, token: Token) -> Iterator[Json]:
        """Yield the events for a piece of text of any kind."""

    @abstractmethod
    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        """Yield the events for the beginning of a call."""

    @abstractmethod
    def _done(self, done: Done) -> Iterator[Json]:
        """Yield the last events of an answer that ended well."""

    @abstractmethod
    def _failed(self, error: RequestError) -> Iterator[Json]:
        """Yield the last events of an answer that ended with `error`."""


HOLE = "\0"
_HOLE = to_json(HOLE)


class Deltas:
    """A precomputed frame for events that differ only in one text."""

    def __init__(self, event: Json) -> None:
        """Prepare the frame. `HOLE` marks the place of the text in `event`.

        No other text in `event` may equal `HOLE`.
        """
        self._start, end = _frame(event).split(_HOLE)
        self._end = end.removesuffix(b"}\n\n")

    def write(self, text: str, members: bytes = b"") -> bytes:
        """Return the event with `text`, and with further `members`."""
        return b"%b%b%b%b}\n\n" % (self._start, to_json(text), self._end, members)

    def frame(self, kind: TokenKind, keep: Callable[[str], object]) -> TextFrame:
        """Return the bytes around the text of tokens of a kind.

        `keep` is called with each token.
        """
        return TextFrame(kind, self._start, self._end + b"}\n\n", keep)


def frames(events: list[Json]) -> bytes:
    """Return `events` as server-sent events."""
    return b"".join(map(_frame, events))


def _frame(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))
