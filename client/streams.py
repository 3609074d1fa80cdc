"""One streamed answer: its events as they come."""

from collections.abc import AsyncIterator
from json import loads

import aiohttp

from .answers import Answer, Done, Event, Failed, event_of, put_together
from .errors import Unreachable
from .http import reaching


class AnswerStream:
    """Iterate over it for the events; the last one is `Done`.

    Iterating raises `RequestFailed` where the request ends with an error, and `Unreachable` where
    the connection breaks before its end.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.id = response.headers.get("X-Request-Id", "")
        self._url = str(response.url.origin())
        self._lines = response.content
        self._first: Event | None = None
        self._has_ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event, self._first = self._first, None
        event = event or await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def begin(self) -> None:
        """Wait for the first event. Raises what iterating would."""
        self._first = await self._next()

    async def answer(self) -> Answer:
        """The whole answer, once it is here: its rest is read, and its beginning must not be."""
        return put_together(self.id, [event async for event in self])

    async def _next(self) -> Event | None:
        if self._has_ended:
            return None
        while line := await self._line():
            event = event_of(loads(line)) if line.strip() else None
            if isinstance(event, Failed):
                self._has_ended = True
                raise event.error
            if event is not None:
                self._has_ended = isinstance(event, Done)
                return event
        raise Unreachable("the connection closed before the answer's end")

    async def _line(self) -> bytes:
        with reaching(self._url):
            return await self._lines.readline()
