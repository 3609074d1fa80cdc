"""One request's events told in an API's own words: as named server-sent events, or as a whole.

For APIs whose stream adds up to the very answer that a client gets in one piece.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from pydantic_core import to_json

from ...shared.inference import Begun, Event, Failed, Notice
from .field_names import FieldNames

Json = dict[str, Any]


class Narrator(Protocol):
    """Turns neutral events into an API's; each has a `type`, which is also its name.

    Of a `Begun` and a `Notice` it makes nothing.
    """

    def begin(self) -> list[Json]:
        """What is told before anything was said; a `Begun` was taken before that."""

    def take(self, event: Event) -> list[Json]:
        """What `event` means."""


async def narrate(events: AsyncIterator[Event], narrator: Narrator) -> AsyncIterator[bytes]:
    """Server-sent events. Raises an error that comes before any event: it can be a status.

    So nothing is told before the first token. Clients repeat a request for its status, and do not
    for an event that says the same.
    """
    has_begun = False
    async for event in events:
        told: list[Json] = []
        if not has_begun and not isinstance(event, Begun | Notice):
            if isinstance(event, Failed):
                raise event.error
            has_begun = True
            told += narrator.begin()
        told += narrator.take(event)
        if told:
            yield b"".join(map(_frame, told))


async def in_own_words(events: AsyncIterator[Event], names: FieldNames) -> AsyncIterator[Event]:
    """`events`; an error's field goes by the API's name."""
    async for event in events:
        yield Failed(names.told(event.error)) if isinstance(event, Failed) else event


async def listen(events: AsyncIterator[Event], narrator: Narrator) -> None:
    """Has all of it told to nobody, for the sake of what it adds up to. Raises its error."""
    async for event in events:
        if isinstance(event, Failed):
            raise event.error
        narrator.take(event)


def _frame(event: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))
