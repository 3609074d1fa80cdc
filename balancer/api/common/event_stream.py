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
    """Turns neutral events into an API's; each has a `type`, which is also its name.

    Some events are not rendered: notices, the end of a tool call (its arguments were already
    sent), and tokens without visible text. Nothing but comments is rendered before the first
    token, because clients retry on an HTTP status but not on an error event.
    """

    _has_begun = False

    def render(self, event: Event, _number: int = 0, /) -> bytes:
        """The bytes for `event`; the first events precede those of the first that is rendered."""
        if isinstance(event, Waiting | Reading):
            return comment(event)
        if self._has_begun or isinstance(event, Begun | Notice):
            return self.write(event)
        self._has_begun = True
        return frames(self.begin()) + self.write(event)

    @abstractmethod
    def begin(self) -> list[Json]:
        """The first events, before any text; `Begun` was taken before."""

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
        """The API events for `event`."""
        return list(self._rendered(event))

    def write(self, event: Event) -> bytes:
        """The API events for `event` as server-sent events, whatever came before."""
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
        """The prompt is counted. This renders no event of its own."""

    @abstractmethod
    def _go_on(self, token: Token) -> bytes | None:
        """The frame of a token that only extends the open item; `None` in any other case.

        This is the hot path, since nearly all tokens are such: see `Deltas`.
        """

    @abstractmethod
    def _said(self, token: Token) -> Iterator[Json]:
        """Write a piece of text of any kind."""

    @abstractmethod
    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        """A call begins."""

    @abstractmethod
    def _done(self, done: Done) -> Iterator[Json]:
        """End the answer after its last event."""

    @abstractmethod
    def _failed(self, error: RequestError) -> Iterator[Json]:
        """End the answer with `error`."""


HOLE = "\0"
_HOLE = to_json(HOLE)


class Deltas:
    """A precomputed frame for events that differ in one text only."""

    def __init__(self, event: Json) -> None:
        """`HOLE` marks the text's place in `event`; no other text in it may equal `HOLE`."""
        self._start, end = _frame(event).split(_HOLE)
        self._end = end.removesuffix(b"}\n\n")

    def write(self, text: str, members: bytes = b"") -> bytes:
        """The event with `text`, and with further members of its object."""
        return b"%b%b%b%b}\n\n" % (self._start, to_json(text), self._end, members)

    def frame(self, kind: TokenKind, keep: Callable[[str], object]) -> TextFrame:
        """The bytes around the text of tokens of a kind; `keep` is called with each token."""
        return TextFrame(kind, self._start, self._end + b"}\n\n", keep)


def frames(events: list[Json]) -> bytes:
    """`events` as server-sent events."""
    return b"".join(map(_frame, events))


def _frame(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))
