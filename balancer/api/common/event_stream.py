"""Renders one request's events in an API's format: named server-sent events, or one object.

For APIs whose streamed events add up to the answer that a client gets without streaming.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, assert_never

from pydantic_core import to_json

from ....shared.errors import RequestError
from ....shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from ..transport.pushing.text_frame import TextFrame
from ..transport.waiting import comment
from .field_names import FieldNames

Json = dict[str, Any]


class EventRenderer(ABC):
    """Turns neutral events into an API's; each has a `type`, which is also its name.

    Some events are not rendered: notices, the end of a tool call (its arguments were already
    sent), and tokens without visible text.
    """

    @abstractmethod
    def begin(self) -> list[Json]:
        """The first events, before any text; `Begun` was taken before."""

    def take(self, event: Event) -> list[Json]:
        """The API events for `event`."""
        return list(self._told(event))

    def write(self, event: Event) -> bytes:
        """Likewise, as server-sent events."""
        if isinstance(event, Token) and (written := self._go_on(event)) is not None:
            return written
        return frames(self.take(event))

    def _told(self, event: Event) -> Iterator[Json]:
        match event:
            case Token():
                if event.text:
                    yield from self._said(event)
            case ToolCallStarted():
                yield from self._called(event)
            case Begun():
                self._begun(event)
            case Waiting() | ToolCall() | Notice():
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

    def frame_of(self, _kind: TokenKind) -> TextFrame | None:
        """What is around the text of the next tokens of a kind, if they differ in no more."""
        return None

    @abstractmethod
    def _said(self, token: Token) -> Iterator[Json]:
        """Some text, of whatever kind."""

    @abstractmethod
    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        """A call begins."""

    @abstractmethod
    def _done(self, done: Done) -> Iterator[Json]:
        """It ended well."""

    @abstractmethod
    def _failed(self, error: RequestError) -> Iterator[Json]:
        """It ended with `error`."""


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
        """What is around the text of tokens of a kind, each of which `keep` is called with."""
        return TextFrame(kind, self._start, self._end + b"}\n\n", keep)


class ServerSentEvents:
    """Renders a stream as server-sent events.

    Nothing but comments is rendered before the first token, because clients retry on an HTTP status
    but not on an error event. Errors name fields as in `names`.
    """

    def __init__(self, renderer: EventRenderer, names: FieldNames) -> None:
        self._renderer = renderer
        self._names = names
        self._has_begun = False
        self._has_comments = False

    def __call__(self, event: Event) -> bytes:
        """The bytes for `event`, if any. Raises an error that precedes all bytes."""
        if isinstance(event, Waiting):
            self._has_comments = True
            return comment(event)
        if self._has_begun:
            if isinstance(event, Failed):
                event = Failed(self._names.told(event.error))
            return self._renderer.write(event)
        if isinstance(event, Failed):
            if not self._has_comments:
                raise self._names.told(event.error)
            event = Failed(self._names.told(event.error))
        if isinstance(event, Begun | Notice):
            return self._renderer.write(event)
        self._has_begun = True
        return frames(self._renderer.begin()) + self._renderer.write(event)

    def frame_of(self, kind: TokenKind) -> TextFrame | None:
        """As `EventRenderer` says."""
        return self._renderer.frame_of(kind)


async def read_to_end(
    events: AsyncIterator[Event], renderer: EventRenderer, names: FieldNames
) -> None:
    """Consumes all events without sending any; `renderer` then holds the result.

    Raises the request's error.
    """
    async for event in events:
        if isinstance(event, Failed):
            raise names.told(event.error)
        renderer.take(event)


def frames(events: list[Json]) -> bytes:
    """`events` as server-sent events."""
    return b"".join(map(_frame, events))


def _frame(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))
