"""The client: keeps a number of streams open, counts and times what comes, prints one JSON line.

It reads sockets without an event loop, since it shares its core with the agents, and only records
what comes; answers are checked when they are whole, latencies computed at the end. With a `--pause`
it reads what has come in the meantime: so it takes less of its core, and adds to the latencies.
"""

import argparse
import gc
import json
import random
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from statistics import quantiles

from arriero.balancer.api.transport.connections import raise_file_limit
from bench.balancer import apis
from bench.balancer.apis import APIS, SOCKET, Api
from bench.balancer.stamps import FIRST_MARK, MARK
from bench.balancer.tally import Arrival, fault, faults_of_calls, latencies
from bench.harness import Flags, at_least
from bench.processes import busy_seconds, cpu_seconds, descendants, resident_bytes

_LAST_CHUNK = b"0\r\n\r\n"
_READ_BYTES = 2**16
_READS_AT_ONCE = 4096
_CONNECTS_AT_ONCE = 32
_SAMPLE = 2000
"""Answers of which the latencies are computed."""
_END_DEADLINE = 120.0
"""Seconds for all streams to end, once no more are started."""


class BenchFailed(Exception):
    """Something came that should not, so there are no figures."""


@dataclass(slots=True)
class Window:
    """What is counted while the load is steady."""

    num_tokens: int = 0
    num_events: int = 0
    num_reads: int = 0

    def count(self, data: bytes) -> None:
        self.num_reads += 1
        self.num_tokens += data.count(MARK)
        self.num_events += data.count(FIRST_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run. Times in seconds, sizes in bytes; `latencies` are percentiles by
    name."""

    num_streams: int
    num_ended: int
    tokens_per_second: float
    tokens_per_cpu_second: float
    cpu_seconds_per_token: float
    tokens_per_event: float
    tokens_per_read: float
    balancer_busy: float
    others_busy: float
    bytes_per_stream: float
    latencies: dict[str, float]


class HttpStream:
    """One connection; a request on it follows the other."""

    def __init__(self, peer: socket.socket, request: bytes, api: Api, num_tokens: int) -> None:
        self.socket = peer
        self.num_open = 1
        self._request = request
        self._api = api
        self._num_tokens = num_tokens
        self._arrivals: list[Arrival] = []
        self.has_begun = False
        """Whether a token has come."""

    def start(self) -> None:
        """Sends the first request."""
        self.socket.send(self._request)

    def take(self, now: float, data: bytes, *, go_on: bool, keep: list[list[Arrival]]) -> int:
        """Bytes came; the number of streams that ended with them. Raises `BenchFailed`."""
        self._arrivals.append((now, data))
        if not self.has_begun:
            self.has_begun = MARK in data
        if not data.endswith(_LAST_CHUNK):
            if not data:
                raw = b"".join(each for _, each in self._arrivals)
                raise BenchFailed(f"a connection closed within a stream: {raw[-300:]!r}")
            return 0
        raw = b"".join(each for _, each in self._arrivals)
        if (wrong := fault(raw, self._api.end, self._num_tokens)) is not None:
            raise BenchFailed(wrong)
        keep.append(self._arrivals)
        self._arrivals = []
        self.num_open = 0
        if go_on:
            self.num_open = 1
            self.socket.send(self._request)
        return 1

    def check(self) -> None:
        """Nothing is left to check."""


class SocketStreams:
    """One WebSocket with several calls at once; a call that ends is followed by another."""

    def __init__(self, peer: socket.socket, num_calls: int, num_tokens: int) -> None:
        self.socket = peer
        self.num_open = num_calls
        self._num_tokens = num_tokens
        self._num_started = 0
        self._arrivals: list[Arrival] = []
        self.has_begun = False
        """Whether a token has come."""
        self._tail = b""

    def start(self) -> None:
        """Sends the first calls."""
        for _ in range(self.num_open):
            self._call()

    def take(self, now: float, data: bytes, *, go_on: bool, keep: list[list[Arrival]]) -> int:
        """Bytes came; the number of streams that ended with them. Raises `BenchFailed`."""
        if not data:
            raise BenchFailed("a WebSocket closed")
        self._arrivals.append((now, data))
        self.has_begun = self.has_begun or MARK in data
        mark = b'"result":'
        ends = (self._tail + data).count(mark)
        self._tail = data[-len(mark) + 1 :]
        for _ in range(ends):
            if go_on:
                self._call()
            else:
                self.num_open -= 1
        if not self.num_open:
            keep.append(self._arrivals)
        return ends

    def check(self) -> None:
        """Raises `BenchFailed` unless every call ended once with all its tokens."""
        raw = b"".join(data for _, data in self._arrivals)
        if faults := faults_of_calls(raw, self._num_started, self._num_tokens):
            raise BenchFailed(f"{len(faults)} calls are not whole: {faults[0]}")

    def _call(self) -> None:
        self.socket.send(apis.call(self._num_started, self._num_tokens))
        self._num_started += 1


Streams = HttpStream | SocketStreams


@dataclass(slots=True)
class Load:
    """All streams, read by one loop."""

    poll: select.epoll = field(default_factory=select.epoll)
    streams: dict[int, Streams] = field(default_factory=dict)
    stored: list[list[Arrival]] = field(default_factory=list)
    num_ended: int = 0
    num_begun: int = 0
    window: Window | None = None
    pause: float = 0.0
    """Seconds from one look at what has come to the next."""

    def add(self, streams: Streams) -> None:
        """Starts it."""
        number = streams.socket.fileno()
        self.poll.register(number, select.EPOLLIN)
        self.streams[number] = streams
        streams.start()

    def read(self, *, go_on: bool = True) -> None:
        """Takes what came, after a short wait."""
        if self.pause:
            time.sleep(self.pause)
        window = self.window
        for number, _ in self.poll.poll(0.01, _READS_AT_ONCE):
            streams = self.streams[number]
            data = streams.socket.recv(_READ_BYTES)
            if window is not None:
                window.count(data)
            had_begun = streams.has_begun
            ended = streams.take(time.monotonic(), data, go_on=go_on, keep=self.stored)
            self.num_ended += ended
            self.num_begun += streams.has_begun and not had_begun

    def run(self, seconds: float) -> None:
        """Reads for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()

    def begin(self) -> None:
        """Reads until each stream has a token."""
        while self.num_begun < len(self.streams):
            self.read()

    def end(self) -> None:
        """Starts nothing more, and reads until all has ended. Raises `BenchFailed`."""
        until = time.monotonic() + _END_DEADLINE
        while num_open := sum(each.num_open for each in self.streams.values()):
            if time.monotonic() > until:
                raise BenchFailed(f"{num_open} streams did not end")
            self.read(go_on=False)
        for streams in self.streams.values():
            streams.check()


def connected(host: str, port: int) -> socket.socket:
    """A connection without delays."""
    peer = socket.create_connection((host, port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def opened(given: argparse.Namespace) -> Iterator[Streams]:
    """The streams, one after the other."""
    host, _, port = given.address.rpartition(":")
    if given.api == SOCKET:
        for first in range(0, given.streams, given.calls):
            peer = connected(host, int(port))
            peer.send(apis.upgrade(given.address))
            while not (answer := peer.recv(_READ_BYTES)).endswith(b"\r\n\r\n"):
                if not answer:
                    raise BenchFailed("no WebSocket was opened")
            num_calls = min(given.calls, given.streams - first)
            yield SocketStreams(peer, num_calls, given.tokens)
        return
    api = APIS[given.api]
    request = api.request(given.address, given.tokens)
    for _ in range(given.streams):
        yield HttpStream(connected(host, int(port)), request, api, given.tokens)


def run(given: argparse.Namespace) -> Figures:
    """Raises `BenchFailed`."""
    gc.disable()  # what comes is stored, and has no cycles
    raise_file_limit(given.streams)
    pids = descendants(given.pid)
    idle_bytes = sum(map(resident_bytes, pids))
    load = Load(pause=given.pause)
    for number, streams in enumerate(opened(given)):
        load.add(streams)
        if number % _CONNECTS_AT_ONCE == 0:
            load.read()
    load.begin()
    load.run(given.warm_up)
    load.window = window = Window()
    cpu, others = -sum(map(cpu_seconds, pids)), -busy_seconds(given.core)
    started = time.monotonic()
    load.run(given.seconds)
    wall = time.monotonic() - started
    cpu += sum(map(cpu_seconds, pids))
    others += busy_seconds(given.core)
    held_bytes = sum(map(resident_bytes, pids)) - idle_bytes
    load.window = None
    load.end()
    if not window.num_tokens:
        raise BenchFailed("no tokens came")
    return Figures(
        num_streams=given.streams,
        num_ended=load.num_ended,
        tokens_per_second=window.num_tokens / wall,
        tokens_per_cpu_second=window.num_tokens / cpu,
        cpu_seconds_per_token=cpu / window.num_tokens,
        tokens_per_event=window.num_tokens / window.num_events,
        tokens_per_read=window.num_tokens / window.num_reads,
        balancer_busy=cpu / wall,
        others_busy=others / wall,
        bytes_per_stream=held_bytes / given.streams,
        latencies=percentiles(load.stored, since=started, until=started + wall),
    )


def percentiles(stored: list[list[Arrival]], since: float, until: float) -> dict[str, float]:
    """Percentiles of the tokens that came while the load was steady, or of a sample of them."""
    within = [each for each in stored if since <= each[-1][0] and each[0][0] <= until]
    sample = random.Random(1).sample(within, min(len(within), _SAMPLE))
    delays = [delay for arrivals in sample for delay in latencies(arrivals, since, until)]
    cuts = quantiles(delays, n=1000, method="inclusive")
    return {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998]}


def parse() -> argparse.Namespace:
    parser = Flags("balancer.client", __doc__)
    parser.add_argument("--address", required=True, help="HOST:PORT of the inference port")
    parser.add_argument("--pid", type=int, required=True, help="of the balancer")
    parser.add_argument("--core", type=int, required=True, help="that agents and client share")
    parser.add_argument("--api", choices=[*APIS, SOCKET], default="openai")
    parser.add_argument("--streams", type=at_least(1), default=256)
    parser.add_argument("--tokens", type=at_least(1), default=64, help="of each stream")
    parser.add_argument("--calls", type=at_least(1), default=64, help="at once on a WebSocket")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=5.0, help="that are measured")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two looks")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(run(parse()))))
    except BenchFailed as error:
        raise SystemExit(f"bench: {error}") from error
