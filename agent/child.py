"""Child processes of the agent: lines in, lines out; no child outlives its parent.

A child reads orders from its standard input and writes reports to its standard output. The end of
the orders means that the parent is gone.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from io import FileIO
from threading import Thread
from typing import Self

NICENESS = 10
"""The niceness of a child: the engine's threads go first."""


def program(module: str) -> tuple[str, ...]:
    """Return the command that runs `module`.

    The option `-P` keeps Python from importing anything from the working directory.
    """
    return (sys.executable, "-P", "-m", module)


# ---- the parent


class Child:
    """A child process. As a context manager, it is killed at the end of the block."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str], *, longest_line: int) -> Self:
        """Start a child. Raises `OSError` if the system cannot start a process."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            limit=longest_line,
            # A terminal sends Ctrl-C to the whole process group. It is the parent's to handle.
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The number of the child's process."""
        return self._process.pid

    def write(self, line: bytes) -> None:
        """Send `line`; it is lost if the process has ended."""
        if self._process.stdin is not None:
            self._process.stdin.write(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that the child writes, until it ends."""
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                yield line

    def kill(self) -> None:
        """End the child at once."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> int:
        """Close the child's input, and wait.

        Returns its exit code, or `-n` if signal `n` ended it.
        """
        if self._process.stdin is not None:
            self._process.stdin.close()
        return await self._process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._process.wait()


# ---- the child


def orders() -> FileIO:
    """Return unbuffered standard input: at exit, Python would wait for a buffer's lock."""
    return FileIO(sys.stdin.fileno(), closefd=False)


def reports() -> FileIO:
    """Return the file for reports: standard output.

    Later output of libraries goes to standard error.
    """
    file = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return FileIO(file, "w")


def work_aside() -> None:
    """Lower this process's priority, and ignore signals that the parent handles."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(NICENESS)
    # huggingface-hub would also ask the hub and the environment which program calls it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def obey(lines: FileIO, on_line: Callable[[bytes], None], *, exit_code: int = 0) -> Thread:
    """Pass each line to `on_line`, on a thread; end this process after the last line.

    The thread ends the process with its parent even if everything else in it is stuck.
    """

    def listen() -> None:
        for line in lines:
            on_line(line)
        os._exit(exit_code)

    thread = Thread(target=listen, name="orders", daemon=True)
    thread.start()
    return thread
