"""Clients that are servers themselves: a page or a proxy in front of the fleet."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from client_tests.program import Desk, end_group
from integration_tests.daemons import until

START_DEADLINE = 90.0
"""Seconds. The slowest takes 25 on a quiet machine."""


def free_port() -> int:
    """A port on which nobody listens now: these programs do not say which one they took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def service(
    desk: Desk, client: str, program: str, *arguments: str, health: str, env: dict[str, str]
) -> AsyncIterator[str]:
    """Runs a server of a client's until the block ends; yields its URL once `health` answers.

    The server is given `--host` and `--port` after its other arguments.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = desk.home / f"{client}.log"
    address = ("--host", "127.0.0.1", "--port", str(port))
    with log.open("w") as output:
        process = await desk.start(
            client, program, *arguments, *address, env=env, output=output.fileno()
        )
    try:
        async with aiohttp.ClientSession() as session:
            await _until_healthy(session, url + health, process, log.read_text)
        yield url
    finally:
        end_group(process)
        await process.wait()


async def _until_healthy(
    session: aiohttp.ClientSession,
    url: str,
    process: asyncio.subprocess.Process,
    told: Callable[[], str],
) -> None:
    async def healthy() -> bool:
        assert process.returncode is None, told()[-4000:]
        try:
            async with session.get(url) as response:
                return response.ok
        except aiohttp.ClientError:
            return False

    await until(healthy, deadline=START_DEADLINE)
