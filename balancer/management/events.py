"""`GET /api/v1/events`: the fleet as server-sent events, rendered once for all readers.

A reader gets a `snapshot`, a `delta` after each change, and `throughput` each second. Snapshots
and deltas have ids. `Last-Event-ID` continues after an event, and so does `?last_event_id=`, for
pages that reconnect by themselves.

Invariants: a slow reader holds only its position in the shared history, and begins again with a
snapshot if the history no longer reaches back that far; while no client reads, nothing is rendered
and no timer runs; there are at most `max_subscribers` readers.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from aiohttp import web

from ...shared.errors import RateLimited, ShuttingDown
from ..api.guard import Leases
from ..api.transport.streaming import begin_stream
from ..cluster.cluster_view import ClusterView
from ..cluster.others import NO_OTHERS
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.shares import EVERYBODY, Shares
from ..fleet.view import FleetDelta
from .answer_types import Snapshot, Trouble
from .event_history import MAX_DELTAS, EventHistory
from .fleet_feed import MAX_REQUESTS_SENT, FleetFeed
from .metrics.fleet_collector import EventNumbers
from .serializers import dumps, snapshot_json, throughput_json
from .throughput import Meter, Throughput

MAX_SUBSCRIBERS = 64
"""Maximum readers at once, which keys share fairly."""

THROUGHPUT_INTERVAL = 1.0
KEEP_ALIVE_INTERVAL = 15.0
RENDER_SHARE = 0.005
"""Maximum share of a core for making deltas.

After an expensive delta the next delta comes later.
"""
MAX_PAUSE = 2.0
"""Maximum seconds between two deltas, because an older page misleads."""

WRITE_BYTES = 64 * 1024
"""Maximum bytes written to a connection at once. This bounds the memory for a slow reader."""

_RETRY = b"retry: 1000\n\n"
"""Tells a browser to reconnect after this many milliseconds."""
_KEEP_ALIVE = b": keep-alive\n\n"


def pause_after(seconds: float) -> float:
    """Return the seconds until the next delta.

    `seconds` is the processor time of the last delta.
    """
    return min(seconds / RENDER_SHARE, MAX_PAUSE)


class Reader:
    """The position of one reader in the published events."""

    def __init__(self, hub: "EventHub", position: int | None) -> None:
        self._hub = hub
        self._position = position
        self._num_points = hub.num_points
        self._num_bytes_seen = hub.history.num_bytes_ever
        self._has_news = asyncio.Event()
        self._has_news.set()
        self._has_ended = False

    @property
    def num_bytes_behind(self) -> int:
        """Return the bytes of held deltas that the reader has not taken."""
        history = self._hub.history
        return min(history.num_bytes_ever - self._num_bytes_seen, history.num_bytes)

    def end(self, _reason: object = None) -> None:
        """End the stream of this reader."""
        self._has_ended = True
        self._has_news.set()

    def notify(self) -> None:
        """Wake the reader, because a frame is ready or the stream has ended."""
        self._has_news.set()

    async def take(self) -> list[bytes]:
        """Wait for events, and return all new ones. An empty list means the end of the stream."""
        frames: list[bytes] = []
        while not frames:
            await self._has_news.wait()
            self._has_news.clear()
            if self._hub.is_closed or self._has_ended:
                return []
            frames = self._news()
        return frames

    def _news(self) -> list[bytes]:
        frames = self._hub.frames_after(self._position)
        self._position = self._hub.history.position
        self._num_bytes_seen = self._hub.history.num_bytes_ever
        if self._num_points != self._hub.num_points:
            self._num_points = self._hub.num_points
            frames.append(self._hub.point)
        return frames


class EventHub:
    """Renders each event once, and wakes all readers."""

    def __init__(
        self,
        runtime: FleetRuntime,
        cluster: ClusterView | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float = THROUGHPUT_INTERVAL,
        max_subscribers: int = MAX_SUBSCRIBERS,
        max_deltas: int = MAX_DELTAS,
    ) -> None:
        self.history = EventHistory(uuid.uuid4().hex[:12], max_deltas=max_deltas)
        self.point = b""
        self.num_points = 0
        self.is_closed = False
        self._runtime = runtime
        self._cluster = cluster or ClusterView()
        self._others = self._reported_others = NO_OTHERS
        self._clock = clock
        self._epoch = time.time() - clock()
        self._interval = interval
        self.shares: Shares[str] = Shares(max_subscribers, everybody=EVERYBODY)
        """The number of readers by key. Readers without keys share one owner."""
        self._readers: set[Reader] = set()
        self._feed = FleetFeed()
        self._revision = -1
        self._throughput = Throughput()
        self.find_troubles: Callable[[], Sequence[Trouble]] = tuple
        """Returns the troubles other than agents' issues.

        Called each second while a client reads.
        """
        self._troubles: Sequence[Trouble] = ()
        self._watched = asyncio.Event()
        self._unwatched = asyncio.Event()

    @property
    def num_subscribers(self) -> int:
        return len(self._readers)

    def numbers(self) -> EventNumbers:
        """Return the bytes held for readers, and the bytes by which readers are behind."""
        behind = sum(reader.num_bytes_behind for reader in self._readers)
        return EventNumbers(self.num_subscribers, self.history.num_bytes, behind)

    @contextmanager
    def subscribe(self, last_event_id: str = "", owner: str = EVERYBODY) -> Iterator[Reader]:
        """Return a context with a reader that continues after the event `last_event_id`.

        Raises `RateLimited` or `ShuttingDown`.
        """
        self._check_open(owner)
        try:
            self._advance()
            with self._reading(Reader(self, self.history.position_of(last_event_id))) as reader:
                yield reader
        finally:
            self.shares.give_back(owner, 1)

    @contextmanager
    def _reading(self, reader: Reader) -> Iterator[Reader]:
        self._readers.add(reader)
        self._watched.set()
        self._unwatched.clear()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self._watched.clear()
                self._unwatched.set()

    def frames_after(self, position: int | None) -> list[bytes]:
        """Return the frames to send to a reader at `position`."""
        return self.history.after(position, self._snapshot, self._clock())

    async def run(self) -> None:
        """Publish events while a client reads, until cancelled."""
        while True:
            await self._watched.wait()
            async with asyncio.TaskGroup() as tasks:
                publishers = (
                    tasks.create_task(self._publish_fleet()),
                    tasks.create_task(self._publish_throughput()),
                    tasks.create_task(self._ask_others()),
                )
                await self._unwatched.wait()
                for publisher in publishers:
                    publisher.cancel()
            if not self._readers:
                self._others = NO_OTHERS  # it grows old

    async def ask_others_first(self) -> None:
        """Ask the other balancers before the first client reads.

        The first snapshot then has their data.
        """
        if not self._readers:
            self._others = await self._cluster.fleet(MAX_REQUESTS_SENT)

    def close(self) -> None:
        """End every stream, and accept no new readers."""
        self.is_closed = True
        self._notify()

    def _check_open(self, owner: str) -> None:
        """Count a new reader. Raises `ShuttingDown`, or `RateLimited` if there are too many."""
        if self.is_closed:
            raise ShuttingDown("the balancer is shutting down")
        if not self.shares.claim(owner, 1):
            raise RateLimited(
                f"{self.num_subscribers} readers already follow the events, "
                f"{self.shares.held(owner)} of them with this key; all keys share "
                f"{self.shares.bound}. Close one of them"
            )

    async def _publish_fleet(self) -> None:
        async for _ in self._runtime.changes():
            started = time.thread_time()
            self._advance()
            await asyncio.sleep(pause_after(time.thread_time() - started))

    async def _ask_others(self) -> None:
        """Ask the other balancers repeatedly, and publish their changes."""
        while True:
            self._others = await self._cluster.fleet(MAX_REQUESTS_SENT)
            if self._others is not self._reported_others:
                self._advance()
            await asyncio.sleep(self._interval)

    async def _publish_throughput(self) -> None:
        view = self._runtime.views.view(max_requests=0)
        revision = self._runtime.views.revision
        meter = Meter(view.agents, view.tokens_total, self._clock())
        while True:
            await asyncio.sleep(self._interval)
            change = self._runtime.views.changes_since(revision)
            counts = self._runtime.views.tokens_since(revision)
            totals = self._runtime.views.totals()
            revision = self._runtime.views.revision
            left = () if change is None else change.agents_left
            own = meter.measure(counts, left, totals.tokens_total, self._clock())
            self._throughput = self._others.throughput(own)
            before, self._troubles = self._troubles, self.find_troubles()
            if self._feed.owes_counts or self._troubles != before:
                self._advance()
            point = dumps(throughput_json(self._others.totals(totals), self._throughput))
            self.point = b"event: throughput\ndata: %s\n\n" % point
            self.num_points += 1
            self._notify()

    def _advance(self, *, counts: bool = False) -> None:
        """Publish the changes since the last call. If `counts`, publish new counts, too."""
        change = self._runtime.views.changes_since(self._revision) if self._revision >= 0 else None
        self._revision = self._runtime.views.revision
        if change is None:
            snapshot = self._view()
            self._feed.restart(snapshot["agents"], snapshot["requests"], self._troubles)
            self._reported_others = self._others
            self.history.restart()
        else:
            delta = self._feed.advance(
                self._with_slots_of_others(change),
                islice(self._runtime.views.requests(), MAX_REQUESTS_SENT),
                self._throughput,
                self._now(),
                self._runtime.views.position,
                self._others,
                troubles=self._troubles,
                counts=counts,
            )
            if delta is None:
                return
            self.history.append(dumps(delta))
        self._notify()

    def _with_slots_of_others(self, change: FleetDelta) -> FleetDelta:
        """Add agents to `change` on which other balancers now take another number of slots."""
        changed = self._others.changed_since(self._reported_others)
        self._reported_others = self._others
        views = [view for id in changed if (view := self._runtime.views.agent(id)) is not None]
        return replace(change, agents=(*change.agents, *views)) if views else change

    def _view(self) -> Snapshot:
        view = self._others.totals(self._runtime.views.view(MAX_REQUESTS_SENT))
        own = snapshot_json(
            view, self._throughput, self._now(), self._runtime.views.position, self._troubles
        )
        return self._others.snapshot(own, MAX_REQUESTS_SENT)

    def _snapshot(self) -> bytes:
        """Return a snapshot as of the last delta. Later changes are in the next delta."""
        self._troubles = self.find_troubles()
        self._advance(counts=True)
        return dumps(self._view())

    def _now(self) -> float:
        """Return seconds since 1970, from a clock that never jumps."""
        return self._epoch + self._clock()

    def _notify(self) -> None:
        for reader in self._readers:
            reader.notify()


async def stream_events(hub: EventHub, request: web.Request, leases: Leases) -> web.StreamResponse:
    """Answer `request` with events until the reader leaves, its key ends, or the hub closes."""
    last_event_id = request.headers.get("Last-Event-ID") or request.query.get("last_event_id", "")
    holder = leases.holder(request)
    await hub.ask_others_first()
    owner = EVERYBODY if holder is None else holder.owner
    with hub.subscribe(last_event_id, owner) as reader, leases.lease(holder, reader.end):
        response = await begin_stream(request)
        await _write(response, [*await reader.take(), _RETRY])
        while frames := await _next_frames(reader):
            await _write(response, frames)
    return response


async def _write(response: web.StreamResponse, frames: Iterable[bytes]) -> None:
    for frame in frames:
        for start in range(0, len(frame), WRITE_BYTES):
            await response.write(frame[start : start + WRITE_BYTES])


async def _next_frames(reader: Reader) -> list[bytes]:
    try:
        async with asyncio.timeout(KEEP_ALIVE_INTERVAL):
            return await reader.take()
    except TimeoutError:
        return [_KEEP_ALIVE]
