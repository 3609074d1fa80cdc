"""Starts daemons without importing their modules each time, which was half of what tests computed.

A process imports a program's modules once and forks for each start of it. The child has its own
arguments, environment and output, and runs the program's `main`, as its script in `bin` would.

    process = await ForkedProcess.start("balancer", ["--log-level", "info"], os.environ)

A forked agent forks what it starts, too: another process has imported what its processes need.

Only what the kernel keeps of a start differs: `/proc/PID/cmdline` and `/proc/PID/environ` are those
of the process that forked. A test of these starts the script itself.
"""

import array
import asyncio
import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamReaderProtocol, WriteTransport
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from arriero.shared import lifecycle
from arriero.shared.strict import build_schemas

MODULES = {
    "balancer": ("arriero.balancer.__main__", "arriero.balancer.daemon"),
    "agent": (
        "arriero.agent.__main__",
        "arriero.agent.gpus",
        "arriero.agent.host_facts",
        "arriero.agent.models.fetcher",
        "arriero.agent.supervision.supervisor",
    ),
    "engine": (
        "arriero.agent.supervision.engine_process",
        "arriero.agent.daemon",
        "arriero.agent.upstream_daemon",
        "arriero.agent.models.fetch_process",
        "arriero.agent.supervision.fit_process",
    ),
}
"""Of each program: the module with its `main`, and what that imports when it begins to serve."""

COMMANDS = {
    ("-P", "-m", module): module
    for module in (
        "arriero.agent.supervision.engine_process",
        "arriero.agent.models.fetch_process",
        "arriero.agent.supervision.fit_process",
    )
}
"""The arguments that an agent gives Python, and the module whose `main` that runs.

One process forks them all: it has imported what each of them needs.
"""

_LENGTH = 4
"""Bytes of the length before each message."""


class ForkedProcess:
    """A program that was forked; it has what is used of `asyncio.subprocess.Process`."""

    def __init__(
        self,
        forker: "_Forker",
        pid: int,
        stdin: WriteTransport | None,
        stdout: StreamReader,
        stderr: StreamReader | None,
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = stdin
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
        start: dict[str, Any] = {
            "module": MODULES[program][0],
            "arguments": [str(each) for each in arguments],
            "environ": dict(environ),
        }
        if program == "agent":
            start["engines"] = _forker("engine").address
        nothing = os.open(os.devnull, os.O_RDONLY)
        return await cls._fork(_forker(program), start, None, nothing, stderr, limit)

    @classmethod
    async def _fork(
        cls,
        forker: "_Forker",
        start: dict[str, Any],
        stdin: WriteTransport | None,
        its_input: int,
        stderr: int,
        limit: int,
    ) -> Self:
        """Closes `its_input`, the file that it reads."""
        ours, its = os.pipe()
        our_errors, its_errors = os.pipe() if stderr == subprocess.PIPE else (None, os.dup(stderr))
        files = (its_input, its, its_errors)
        try:
            pid = forker.ask(start, files)
        finally:
            for file in files:
                os.close(file)
        errors = None if our_errors is None else await _reader(our_errors, limit)
        return cls(forker, pid, stdin, await _reader(ours, limit), errors)

    def send_signal(self, number: int) -> None:
        """Its process number stays its own until its exit was taken."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

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


class ForkedEngines:
    """What a forked agent has in place of `asyncio.create_subprocess_exec`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._forker: _Forker | None = None
        self._start_process = asyncio.create_subprocess_exec

    async def start(self, *command: Any, **options: Any) -> Any:
        """A process: forked if it is one of `COMMANDS`, else as asyncio starts it."""
        module = COMMANDS.get(command[1:])
        if module is None:
            return await self._start_process(*command, **options)
        if self._forker is None:
            self._forker = _Forker(self._address)
        its_input, ours = os.pipe()
        stdin, _ = await asyncio.get_running_loop().connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(ours, "wb", buffering=0)
        )
        start = {"module": module, "arguments": [], "environ": dict(os.environ), "session": True}
        errors = sys.stderr.fileno()
        return await ForkedProcess._fork(
            self._forker, start, stdin, its_input, errors, options["limit"]
        )


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
        _forkers[program] = _started(program)
    return _forkers[program]


def _started(program: str) -> "_Forker":
    """Start the process that forks one program; it ends with this one."""
    address = f"\0arriero-{program}-{os.getpid()}"
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    alive, its_alive = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listener, its_alive:
        listener.bind(address)
        listener.listen()
        files = (listener.fileno(), its_alive.fileno())
        process = subprocess.Popen(
            (sys.executable, "-m", __name__, program, *map(str, files)),
            pass_fds=files,
            env=environ,
            cwd=Path(__file__).parent.parent,
        )

    forker = _Forker(address)

    def end() -> None:
        forker.close()
        alive.close()
        process.wait()

    atexit.register(end)
    return forker


class _Forker:
    """A connection to the process that forks one program."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)

    def close(self) -> None:
        self._socket.close()

    def ask(self, message: dict[str, Any], files: Sequence[int] = ()) -> int:
        """Its answer: a process number, or an exit code."""
        _send(self._socket, message, files)
        answer = _receive(self._socket)
        if answer is None:
            raise RuntimeError("the process that forks has ended")
        number: int = answer[0]["number"]
        return number


def _send(connection: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([len(data).to_bytes(_LENGTH)], rights)
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A message and its files; None where the other side is gone."""
    try:
        length, files, _, _ = socket.recv_fds(connection, _LENGTH, 3, socket.MSG_WAITALL)
    except ConnectionResetError:
        return None
    if not length:
        return None
    data = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
    return json.loads(data), files


class _Forking:
    """The process that forks: it answers connections, until the one that says it is needed ends."""

    def __init__(self, program: str, listener: socket.socket, needed: socket.socket) -> None:
        self._program = program
        self._listener = listener
        self._needed = needed
        self._children: defaultdict[socket.socket, set[int]] = defaultdict(set)
        """Whose exit a connection has not asked for yet."""
        self._orphans: set[int] = set()
        """Children whose connection is gone: nobody asks for their exit."""
        self._selector = selectors.DefaultSelector()
        self._exits, self._exit = socket.socketpair()
        for each in (listener, needed, self._exits):
            self._selector.register(each, selectors.EVENT_READ)
        self._exit.setblocking(False)
        signal.set_wakeup_fd(self._exit.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> str | None:
        """In a child the module that it is to run; None when this process is no longer needed."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._needed:
                    return None
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                elif key.fileobj is self._exits:
                    self._exits.recv(4096)
                    self._collect()
                elif module := self._answer(key.fileobj):  # type: ignore[arg-type]
                    return module

    def _answer(self, connection: socket.socket) -> str | None:
        """The module that this is to run, if it is a child now."""
        received = _receive(connection)
        if received is None:
            self._selector.unregister(connection)
            connection.close()
            self._orphans |= self._children.pop(connection, set())
            self._collect()
            return None
        message, files = received
        if "ended" in message:
            self._children[connection].discard(message["ended"])
            _, status = os.waitpid(message["ended"], 0)
            _send(connection, {"number": os.waitstatus_to_exitcode(status)})
            return None
        pid = os.fork()
        if pid == 0:
            self._leave()
            _become(self._program, message, files)
            return str(message["module"])
        for file in files:
            os.close(file)
        self._children[connection].add(pid)
        with suppress(BrokenPipeError):  # the next look at the connection says so
            _send(connection, {"number": pid})
        return None

    def _collect(self) -> None:
        """An orphan that has ended would otherwise seem to live on."""
        for pid in list(self._orphans):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                self._orphans.remove(pid)

    def _leave(self) -> None:
        """What a child has nothing to do with."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._exit.close()


def _become(program: str, message: dict[str, Any], files: Sequence[int]) -> None:
    """What a new process would have: its input, output, arguments, environment and signals."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv = [str(Path(sys.executable).parent / program), *message["arguments"]]
    os.environ.clear()
    os.environ.update(message["environ"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if message.get("session"):
        os.setsid()
    if "engines" in message:
        engines = ForkedEngines(message["engines"])
        asyncio.create_subprocess_exec = engines.start  # type: ignore[assignment]


def main() -> int:
    """The process that forks, and each of its children."""
    program, listener, needed = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends it
    with lifecycle.loading():
        modules = {name: import_module(name) for name in MODULES[program]}
        if program == "balancer":
            modules["arriero.balancer.daemon"].build()
        else:
            build_schemas()
    forking = _Forking(
        program, socket.socket(fileno=int(listener)), socket.socket(fileno=int(needed))
    )
    module = forking.run()
    return 0 if module is None else modules[module].main() or 0


if __name__ == "__main__":
    sys.exit(main())
