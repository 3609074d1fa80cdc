"""The engine process as its supervisor sees it: orders in, reports out, exit code."""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Self

from ...shared.log import context
from .supervisor_protocol import Order, Report, decode_report, encode_order

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "arriero.agent.supervision.engine_process")
"""`-P`: nothing is imported from the working directory."""

MAX_REPORT = 4 * 2**20
"""Most bytes of a report: an order that is passed on may hold a chat template."""


class Child:
    """One engine process. It ends when its standard input is closed, so it never outlives this."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        """Raises `OSError` when the system cannot start a process."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            limit=MAX_REPORT,
            # A terminal sends Ctrl-C to the whole process group. It must count once: the child
            # gets it as an order.
            start_new_session=True,
        )
        logger.info("the engine process starts", extra=context(pid=process.pid))
        return cls(process)

    def say(self, order: Order) -> None:
        """Send an order; it is lost if the process has ended."""
        if self._process.stdin is not None:
            self._process.stdin.write(encode_order(order))

    async def reports(self) -> AsyncIterator[Report]:
        """Its reports, until it ends."""
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                yield decode_report(line)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> int:
        """End it if it still runs. Returns its exit code, or `-n` if signal `n` ended it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return await self._process.wait()
