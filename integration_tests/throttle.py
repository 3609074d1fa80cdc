"""A slow line on loopback: a TCP proxy that passes on so many bytes a second, in small buffers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 4096
"""Bytes that the proxy takes at once; as many are on their way in each direction at most."""


@asynccontextmanager
async def slow_line(target: str, bytes_per_second: float) -> AsyncIterator[str]:
    """Listens while inside; gives the address that leads to `target` (`host:port`)."""
    host, port = target.rsplit(":", 1)

    async def serve(listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as lines:
            while True:
                near, _ = await loop.sock_accept(listening)
                far = _small_socket()
                await loop.sock_connect(far, (host, int(port)))
                lines.create_task(_join(near, far, bytes_per_second))

    with _small_socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        serving = asyncio.create_task(serve(listening))
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


def _small_socket() -> socket.socket:
    """Its buffers are small before it is connected, or a large window would be agreed on."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
    return sock


async def _join(near: socket.socket, far: socket.socket, bytes_per_second: float) -> None:
    with near, far:
        async with asyncio.TaskGroup() as directions:
            directions.create_task(_pass_on(near, far, bytes_per_second))
            directions.create_task(_pass_on(far, near, bytes_per_second))


async def _pass_on(source: socket.socket, sink: socket.socket, bytes_per_second: float) -> None:
    """Until either side is gone, which the other one is told."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(source, CHUNK):
            await loop.sock_sendall(sink, data)
            await asyncio.sleep(len(data) / bytes_per_second)  # what makes the line slow
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
    with suppress(OSError):
        source.shutdown(socket.SHUT_RD)
