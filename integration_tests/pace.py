"""Holds an agent's engine, so that a test acts in the middle of an answer, however fast that comes.

    await agent.pace.hand_out(5)   # five tokens of each running sequence, and no more
    ...                            # ask, wait until it streams, act: the answer is not over
    await agent.pace.let_go()

Each engine process of the agent connects when it has loaded its model, and does as the last call
said. What `agent/engine/pace.py` says of steps holds here.
"""

import asyncio
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

SOCKET = "ARRIERO_PACE_SOCKET"

OBEYS_WITHIN = 60.0
"""Seconds: a step is never that long."""


T = TypeVar("T")


class Pace:
    """The pace of one agent; free until told otherwise."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pace-")
        self._allowed = "free"
        self._per_second = ""
        self._engines: list[tuple[StreamReader, StreamWriter]] = []
        self._turn = asyncio.Lock()
        self._door = asyncio.Event()
        self._door.set()
        self._server: asyncio.Server

    @classmethod
    async def open(cls) -> Self:
        pace = cls()
        pace._server = await asyncio.start_unix_server(pace._connected, pace.environment[SOCKET])
        return pace

    @property
    def environment(self) -> dict[str, str]:
        """What the agent's process has to find there."""
        return {SOCKET: str(Path(self._folder.name) / "socket")}

    async def hold(self) -> None:
        """Compute nothing. When this returns nothing is being computed."""
        await self.hand_out(0)

    async def hand_out(self, num_steps: int) -> None:
        """Compute that many steps that give tokens, from now on, and then hold."""
        await self._say(str(num_steps), self._per_second)

    async def let_go(self) -> None:
        """Compute as fast as it goes, or as `slow` said."""
        await self._say("free", self._per_second)

    async def slow(self, steps_per_second: float | None) -> None:
        """Compute no faster than that, from now on; `None`: as fast as it goes.

        An engine that is in a step obeys after it.
        """
        await self._say(self._allowed, str(steps_per_second or ""))

    async def hang(self) -> None:
        """The engines that are here begin a step of ten minutes; those that come later are free."""
        async with self._turn:
            self._allowed, self._per_second = "free", ""
            await self._tell_all(f"free {1 / 600}".encode())

    async def step_until(self, reading: Awaitable[T]) -> T:
        """What `reading` gives; a step more is computed whenever a second has not brought it.

        Tokens that come while a daemon is busy are joined, so how many steps give so many events
        is not known before.
        """
        task = asyncio.ensure_future(reading)
        while not (await asyncio.wait({task}, timeout=1.0))[0]:
            await self.hand_out(1)
        return task.result()

    def keep_out(self) -> None:
        """Engines that have loaded their model from now on serve nothing until they are let in."""
        self._door.clear()

    def let_in(self) -> None:
        """Those that wait serve, and those that come."""
        self._door.set()

    async def close(self) -> None:
        """Engines that are still there go on as fast as it goes."""
        self._door.set()
        self._server.close()
        for _, writer in self._engines:
            writer.close()
        self._folder.cleanup()

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._door.wait()
        async with self._turn:
            engine = (reader, writer)
            if await _tell(engine, self._order):
                self._engines.append(engine)

    @property
    def _order(self) -> bytes:
        return f"{self._allowed} {self._per_second}".encode()

    async def _say(self, allowed: str, per_second: str) -> None:
        async with self._turn:
            self._allowed, self._per_second = allowed, per_second
            await self._tell_all(self._order)

    async def _tell_all(self, what: bytes) -> None:
        answers = [await _tell(each, what) for each in self._engines]
        pairs = zip(self._engines, answers, strict=True)
        self._engines = [each for each, is_there in pairs if is_there]


async def _tell(engine: tuple[StreamReader, StreamWriter], what: bytes) -> bool:
    """Whether it obeyed; an engine process that has ended did not."""
    reader, writer = engine
    with suppress(ConnectionError):
        writer.write(what + b"\n")
        async with asyncio.timeout(OBEYS_WITHIN):
            if await reader.readline():
                return True
    writer.close()
    return False
