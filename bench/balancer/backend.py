"""A simulated OpenAI-compatible server, for balancers that expect one: it computes nothing.

Like a simulated agent, it gives each running request one stamped token a step. Requests are spread
over `--groups`, each of which has its steps at times of its own, as so many agents have. Asked
directly, it is the floor of what a stream can cost: the same bytes to the same sockets.
"""

import argparse
import asyncio
import json
from itertools import cycle
from typing import cast

import uvloop

from bench.balancer.stamps import stamp
from bench.harness import Flags, at_least

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Cache-Control: no-store\r\n\r\n"
)
_CHUNK = (
    b'data: {"id":"chatcmpl-simulated","object":"chat.completion.chunk","created":1,'
    b'"model":"simulated","choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n'
)
_FIRST = _CHUNK % (b'{"role":"assistant","content":""}', b"null")
_TOKEN_START, _TOKEN_END = (
    _CHUNK.replace(b"%b", b'{"content":"@"}', 1).replace(b"%b", b"null", 1).split(b"@")
)
_LAST = _CHUNK % (b"{}", b'"length"') + b"data: [DONE]\n\n"
_FACTS = {
    "object": "list",
    "data": [{"id": "simulated", "object": "model", "created": 1, "owned_by": "bench"}],
    "model_path": "simulated",
    "served_model_name": "simulated",
    "is_generation": True,
    "status": "ready",
}
"""The answer to every other path: what balancers ask before they send requests."""


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """One connection; its requests follow one another."""

    def __init__(self, group: "Group") -> None:
        self._group = group
        self._buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._group.running.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        lengths = [line[15:] for line in lines if line.startswith(b"content-length:")]
        size = int(lengths[0]) if lengths else 0
        if len(rest) < size:
            return
        self._buffer = rest[size:]
        self._answer(head, rest[:size])

    def write(self, data: bytes) -> None:
        """To the client."""
        if self.transport is not None:
            self.transport.write(data)

    def _answer(self, head: bytes, body: bytes) -> None:
        if b"/chat/completions" in head.partition(b"\r\n")[0]:
            request = json.loads(body)
            num_tokens = request.get("max_tokens") or request["max_completion_tokens"]
            self._group.running[self] = num_tokens
            self.write(_HEAD + _chunked(_FIRST))
            self._group.has_work.set()
            return
        facts = json.dumps(_FACTS).encode()
        self.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(facts), facts)
        )


class Group:
    """Requests that get their tokens in one step."""

    def __init__(self) -> None:
        self.running: dict[Connection, int] = {}
        self.has_work = asyncio.Event()

    async def generate(self, period: float, phase: float) -> None:
        """Steps every `period` seconds, shifted by `phase`; without pauses if it is 0."""
        loop = asyncio.get_running_loop()
        due = loop.time() + phase
        while True:
            if not self.running:
                self.has_work.clear()
                await self.has_work.wait()
                due = max(due, loop.time())
            due += period
            await asyncio.sleep(max(due - loop.time(), 0))
            step(self.running)


async def run(port: int, rate: float, num_groups: int) -> None:
    """Serves until it is ended."""
    groups = [Group() for _ in range(num_groups)]
    turns = cycle(groups)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(next(turns)), "127.0.0.1", port)
    taken = server.sockets[0].getsockname()[1]
    print(f"ready backend=127.0.0.1:{taken}", flush=True)
    period = 1 / rate if rate else 0.0
    async with asyncio.TaskGroup() as tasks:
        for number, group in enumerate(groups):
            tasks.create_task(group.generate(period, number * period / num_groups))


def step(running: dict[Connection, int]) -> None:
    """One token for each running request."""
    for connection, num_left in list(running.items()):
        connection.write(_chunked(b"%b%b%b" % (_TOKEN_START, stamp(), _TOKEN_END)))
        if num_left > 1:
            running[connection] = num_left - 1
        else:
            del running[connection]
            connection.write(_chunked(_LAST) + b"0\r\n\r\n")


def parse() -> argparse.Namespace:
    parser = Flags("balancer.backend", __doc__)
    parser.add_argument("--port", type=at_least(0), default=0)
    parser.add_argument("--rate", type=float, default=20.0, help="steps a second; 0: no pauses")
    parser.add_argument("--groups", type=at_least(1), default=1, help="with steps of their own")
    return parser.parse_args()


if __name__ == "__main__":
    given = parse()
    uvloop.run(run(given.port, given.rate, given.groups))
