"""Merges several streams into one, in the order in which their events arrive.

At most one event of each stream is read ahead. So backpressure reaches the streams, which merge
waiting events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self, TypeVar

from ....shared.errors import RequestError
from ....shared.inference import Done, Event, Failed, GenerateRequest, RequestId
from .accumulator import Accumulator


class EventStream(Protocol):
    """A source of events; the last event is the end."""

    @property
    def id(self) -> RequestId | None: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def close(self) -> None: ...


class RefusedStream:
    """A stream that stands for a refused request; it has only the error."""

    id = None

    def __init__(self, error: RequestError) -> None:
        self._error = error

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield Failed(self._error)

    def close(self) -> None:
        """Do nothing: a refused request has nothing to close."""


AnyStream = TypeVar("AnyStream", bound=EventStream)


def open_all(
    open_one: Callable[[GenerateRequest], AnyStream], requests: Iterable[GenerateRequest]
) -> list[AnyStream]:
    """Open a stream for each request, in order. If one cannot be opened, the opened ones are
    closed.
    """
    with ExitStack() as opened:
        streams = []
        for request in requests:
            streams.append(open_one(request))
            opened.callback(streams[-1].close)
        opened.pop_all()
        return streams


def or_refusal(
    open_one: Callable[[GenerateRequest], EventStream],
) -> Callable[[GenerateRequest], EventStream]:
    """Return a function like `open_one` that returns a `RefusedStream` for a refused request."""

    def open_or_refuse(request: GenerateRequest) -> EventStream:
        try:
            return open_one(request)
        except RequestError as error:
            error.forget_frames()
            return RefusedStream(error)

    return open_or_refuse


class Merged:
    """Several open streams as one. Use it with `async with`, which closes all of them at the end.

    Iterating yields non-empty lists of `(stream index, event)`: all events that are ready, in order
    within each stream. It stops when every stream has ended.
    """

    def __init__(self, streams: Sequence[EventStream]) -> None:
        self._streams = streams
        self._ready: asyncio.Queue[tuple[int, Event]] = asyncio.Queue(maxsize=len(streams))
        self._pumps: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        if len(self._streams) > 1:
            self._pumps = [
                self._group.create_task(self._pump(number, stream))
                for number, stream in enumerate(self._streams)
            ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self._streams:
            stream.close()
        for pump in self._pumps:
            pump.cancel()
        # The group hears nothing of the caller's error: it would wrap it in a group of its own.
        await self._group.__aexit__(None, None, None)

    async def __aiter__(self) -> AsyncIterator[list[tuple[int, Event]]]:
        if len(self._streams) == 1:
            async for event in self._streams[0]:
                yield [(0, event)]
            return
        num_running = len(self._streams)
        while num_running:
            events = [await self._ready.get()]
            while not self._ready.empty():
                events.append(self._ready.get_nowait())
            num_running -= sum(isinstance(event, Done | Failed) for _, event in events)
            yield events

    async def collect(self) -> list[Accumulator]:
        """Return the collected answer of each stream, in order, once all streams have ended."""
        answers = [Accumulator() for _ in self._streams]
        async for events in self:
            for number, event in events:
                answers[number].add(event)
        return answers

    async def _pump(self, number: int, stream: EventStream) -> None:
        async for event in stream:
            await self._ready.put((number, event))
