"""A simulated OpenAI-compatible server, for balancers that expect one: it computes nothing.

Like the simulated agents, a step gives each running request one stamped token.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from typing import cast

import uvloop

from bench.arguments import at_least
from bench.balancer.stamps import stamp

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

    def __init__(self, running: "dict[Connection, int]", on_work: Callable[[], None]) -> None:
        self._running = running
        self._on_work = on_work
        self._buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._running.pop(self, None)

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
            wanted = json.loads(body)
            num_tokens = wanted.get("max_tokens") or wanted["max_completion_tokens"]
            self._running[self] = num_tokens
            self.write(_HEAD + _chunked(_FIRST))
            self._on_work()
            return
        facts = json.dumps(_FACTS).encode()
        self.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(facts), facts)
        )


async def run(port: int, rate: float) -> None:
    """Serves until it is ended."""
    running: dict[Connection, int] = {}
    has_work = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(running, has_work.set), "127.0.0.1", port)
    taken = server.sockets[0].getsockname()[1]
    print(f"ready backend=127.0.0.1:{taken}", flush=True)
    due = loop.time()
    while True:
        if not running:
            has_work.clear()
            await has_work.wait()
            due = loop.time()
        due += 1 / rate if rate else 0.0
        await asyncio.sleep(max(due - loop.time(), 0))
        step(running)


def step(running: dict[Connection, int]) -> None:
    """One token for each running request."""
    for connection, num_left in list(running.items()):
        connection.write(_chunked(b"%b%b%b" % (_TOKEN_START, stamp(), _TOKEN_END)))
        if num_left > 1:
            running[connection] = num_left - 1
        else:
            del running[connection]
            connection.write(_chunked(_LAST) + b"0\r\n\r\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.balancer.backend")
    parser.add_argument("--port", type=at_least(0), default=0)
    parser.add_argument("--rate", type=float, default=20.0, help="steps a second; 0: no pauses")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    uvloop.run(run(given.port, given.rate))
