"""Starts daemons without importing their modules each time, which was half of what tests computed.

A process imports a program's modules once and forks for each start of it. The child has its own
arguments, environment and output, and runs the program's `main`, as its script in `bin` would.

    process = await ForkedProcess.start("balancer", ["--log-level", "info"], os.environ)

Only what the kernel keeps of a start differs: `/proc/PID/cmdline` and `/proc/PID/environ` are those
of the process that forked. A test of these starts the script itself.
"""

import array
import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from arriero.shared import lifecycle

MODULES = {
    "balancer": ("arriero.balancer.__main__", "arriero.balancer.daemon"),
    "agent": (
        "arriero.agent.__main__",
        "arriero.agent.gpus",
        "arriero.agent.host_facts",
        "arriero.agent.models.fetcher",
        "arriero.agent.supervision.supervisor",
    ),
}
"""Of each program: the module with its `main`, and what that imports when it begins to serve."""

_LENGTH = 4
"""Bytes of the length before each message."""


class ForkedProcess:
    """A program that was forked; it has what tests use of `asyncio.subprocess.Process`."""

    def __init__(
        self, forker: "_Forker", pid: int, stdout: StreamReader, stderr: StreamReader | None
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._forker = forker
        self._exit = asyncio.create_task(self._until_exit())

    @classmethod
    async def start(
        cls,
        program: str,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        stderr: int = subprocess.PIPE,
        limit: int = 2**16,
    ) -> Self:
        """`stderr`: a file, or PIPE. `limit`: bytes of a line of its output."""
        ours, its = os.pipe()
        our_errors, its_errors = os.pipe() if stderr == subprocess.PIPE else (None, os.dup(stderr))
        forker = _forker(program)
        try:
            start = {"arguments": [str(each) for each in arguments], "environ": dict(environ)}
            pid = forker.ask(start, (its, its_errors))
        finally:
            os.close(its)
            os.close(its_errors)
        errors = None if our_errors is None else await _reader(our_errors, limit)
        return cls(forker, pid, await _reader(ours, limit), errors)

    def send_signal(self, number: int) -> None:
        """Its process number stays its own until its exit was taken."""
        if self.returncode is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        return await asyncio.shield(self._exit)

    async def _until_exit(self) -> int:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        pidfd = os.pidfd_open(self.pid)
        loop.add_reader(pidfd, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self.returncode = self._forker.ask({"ended": self.pid})
        return self.returncode


async def _reader(pipe: int, limit: int) -> StreamReader:
    reader = StreamReader(limit=limit)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    return reader


_forkers: dict[str, "_Forker"] = {}


def _forker(program: str) -> "_Forker":
    """That of this process."""
    if program not in _forkers:
        _forkers[program] = _Forker(program)
    return _forkers[program]


class _Forker:
    """The process that forks one program; it ends with this one."""

    def __init__(self, program: str) -> None:
        self._socket, its = socket.socketpair()
        environ = {
            name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"
        }
        with its:
            self._process = subprocess.Popen(
                (sys.executable, "-m", __name__, program, str(its.fileno())),
                pass_fds=(its.fileno(),),
                env=environ,
                cwd=Path(__file__).parent.parent,
            )
        atexit.register(self._close)

    def ask(self, message: dict[str, Any], files: Sequence[int] = ()) -> int:
        """Its answer: a process number, or an exit code."""
        _send(self._socket, message, files)
        answer = _receive(self._socket)
        if answer is None:
            raise RuntimeError("the process that forks has ended")
        number: int = answer[0]["number"]
        return number

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


def _send(connection: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([len(data).to_bytes(_LENGTH)], rights)
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A message and its files; None where the other side is gone."""
    length, files, _, _ = socket.recv_fds(connection, _LENGTH, 2, socket.MSG_WAITALL)
    if not length:
        return None
    data = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
    return json.loads(data), files


def forked(connection: socket.socket, program: str) -> bool:
    """Fork as asked. Returns true in each child, and false when nobody asks any more."""
    while (received := _receive(connection)) is not None:
        message, files = received
        if "ended" in message:
            _, status = os.waitpid(message["ended"], 0)
            _send(connection, {"number": os.waitstatus_to_exitcode(status)})
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(program, message["arguments"], message["environ"], files)
            return True
        for file in files:
            os.close(file)
        _send(connection, {"number": pid})
    return False


def _become(
    program: str, arguments: list[str], environ: dict[str, str], files: Sequence[int]
) -> None:
    """What a new process would have: its input, output, arguments, environment and signals."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, *files)):
        os.dup2(file, number)
        os.close(file)
    sys.argv = [str(Path(sys.executable).parent / program), *arguments]
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """The process that forks, and each of its children."""
    program, file = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends it
    with lifecycle.loading():
        of_program, *_ = [import_module(name) for name in MODULES[program]]
    if not forked(socket.socket(fileno=int(file)), program):
        return 0
    code: int = of_program.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
