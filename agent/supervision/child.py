"""The engine process as its supervisor holds it: orders in, reports out, and its end."""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import Self

from ...shared.log import context
from .supervisor_protocol import Order, Report, decode_report, encode_order

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "arriero.agent.supervision.engine_process")
"""`-P`: whatever lies in the working directory is not imported."""


class Child:
    """One engine process. It ends when its orders do, so whatever ends the holder ends it too."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        """Raises `OSError` when the system cannot start a process."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            # Ctrl-C reaches a terminal's whole process group, and must count once: the child
            # hears of it as an order.
            start_new_session=True,
        )
        logger.info("the engine process starts", extra=context(pid=process.pid))
        return cls(process)

    def say(self, order: Order) -> None:
        """Give an order; one that comes too late for the process is lost with it."""
        if self._process.stdin is not None:
            self._process.stdin.write(encode_order(order))

    async def reports(self) -> AsyncIterator[Report]:
        """What it reports, until it ends."""
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                yield decode_report(line)

    async def end(self) -> int:
        """End it if it has not ended, and answer its exit code; `-n` when signal `n` ended it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return await self._process.wait()
