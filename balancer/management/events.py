"""`GET /api/v1/events`: the fleet as server-sent events, rendered once for all who watch.

Invariants: a reader that is slow has at most one frame of each kind waiting, always the newest;
nothing is rendered and nothing ticks while nobody watches; there are at most `max_subscribers`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from ...shared.errors import RateLimited, ShuttingDown
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.view import FleetView
from .serializers import Json, dumps, fleet_json, throughput_json
from .throughput import Meter, Throughput

MAX_SUBSCRIBERS = 64
THROUGHPUT_INTERVAL = 1.0
KEEP_ALIVE_INTERVAL = 15.0
RENDER_SHARE = 0.1
"""Largest share of the loop's time that snapshots may take: a large fleet's come less often."""

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_RETRY = b"retry: 1000\n\n"
"""How long a browser waits before it dials again, in milliseconds."""
_KEEP_ALIVE = b": keep-alive\n\n"


class Mailbox:
    """What one reader has still to be sent."""

    def __init__(self) -> None:
        self._frames: dict[str, bytes] = {}
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, event: str, frame: bytes) -> None:
        """Leave `frame`; it takes the place of one of the same event that was not taken."""
        self._frames[event] = frame
        self._changed.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._is_closed = True
        self._changed.set()

    async def take(self) -> bytes:
        """All that waits, as soon as something does; nothing when the mailbox is closed."""
        await self._changed.wait()
        self._changed.clear()
        frames = b"".join(self._frames.values())
        self._frames.clear()
        return b"" if self._is_closed else frames


class EventHub:
    """Renders each event once and leaves it in the mailbox of everyone who watches."""

    def __init__(
        self,
        runtime: FleetRuntime,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float = THROUGHPUT_INTERVAL,
        max_subscribers: int = MAX_SUBSCRIBERS,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._interval = interval
        self._max_subscribers = max_subscribers
        self._mailboxes: set[Mailbox] = set()
        self._throughput = Throughput()
        self._watched = asyncio.Event()
        self._unwatched = asyncio.Event()
        self._is_closed = False

    @property
    def num_subscribers(self) -> int:
        return len(self._mailboxes)

    @contextmanager
    def subscribe(self) -> Iterator[Mailbox]:
        """A mailbox with the whole fleet in it. Raises `RateLimited` or `ShuttingDown`."""
        self._check_open()
        mailbox = Mailbox()
        mailbox.put("fleet", self._fleet_frame(self._runtime.view()))
        self._mailboxes.add(mailbox)
        self._watched.set()
        self._unwatched.clear()
        try:
            yield mailbox
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes:
                self._watched.clear()
                self._unwatched.set()

    async def run(self) -> None:
        """Publish whenever somebody watches, until cancelled."""
        while True:
            await self._watched.wait()
            async with asyncio.TaskGroup() as tasks:
                publishers = (
                    tasks.create_task(self._publish_fleet()),
                    tasks.create_task(self._publish_throughput()),
                )
                await self._unwatched.wait()
                for publisher in publishers:
                    publisher.cancel()

    def close(self) -> None:
        """End every stream and accept no more."""
        self._is_closed = True
        for mailbox in self._mailboxes:
            mailbox.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ShuttingDown("the balancer is shutting down")
        if self.num_subscribers >= self._max_subscribers:
            raise RateLimited(
                f"{self.num_subscribers} readers are watching already, the most there may be; "
                "close one of them"
            )

    async def _publish_fleet(self) -> None:
        async for view in self._runtime.watch():
            started = self._clock()
            self._publish("fleet", self._fleet_frame(view))
            await asyncio.sleep((self._clock() - started) / RENDER_SHARE)

    async def _publish_throughput(self) -> None:
        self._throughput = Throughput()
        meter = Meter()
        meter.look(self._runtime.view(), self._clock())
        while True:
            await asyncio.sleep(self._interval)
            view = self._runtime.view()
            self._throughput = meter.look(view, self._clock())
            frame = _frame("throughput", throughput_json(view, self._throughput))
            self._publish("throughput", frame)

    def _fleet_frame(self, view: FleetView) -> bytes:
        return _frame("fleet", fleet_json(view, self._throughput))

    def _publish(self, event: str, frame: bytes) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(event, frame)


def _frame(event: str, body: Json) -> bytes:
    return f"event: {event}\ndata: {dumps(body)}\n\n".encode()


async def stream_events(hub: EventHub, request: web.Request) -> web.StreamResponse:
    """Answer `request` with events until it goes away or the hub closes."""
    with hub.subscribe() as mailbox:
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        await response.write(await mailbox.take() + _RETRY)
        while frames := await _next_frames(mailbox):
            await response.write(frames)
    return response


async def _next_frames(mailbox: Mailbox) -> bytes:
    try:
        async with asyncio.timeout(KEEP_ALIVE_INTERVAL):
            return await mailbox.take()
    except TimeoutError:
        return _KEEP_ALIVE
