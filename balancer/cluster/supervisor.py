"""The parent of the workers: starts workers, restarts lost ones, and passes on their messages.

It also reserves the ports on which all workers listen.
"""

import asyncio
import logging
import os
import socket
import sys
import time
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import assert_never

from ...shared import lifecycle
from ...shared.lifecycle import Shutdown, StartupError
from ...shared.log import context
from ...shared.quantities import Address
from ..settings import BalancerSettings
from .crew import Announce, Crew, Decision, Halt, Quit, Start
from .peer_store import Beat, Peer
from .worker import VARIABLE, Place
from .worker_messages import (
    MOST_BYTES,
    Beating,
    Granted,
    Lead,
    Leave,
    Living,
    Peers,
    Ready,
    Refresh,
    Spread,
    Stop,
    ToParent,
    ToWorker,
    decode_to_parent,
    encode,
)

logger = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", __name__.removesuffix(".cluster.supervisor"))

MOST_WAITING = 16 * 1024 * 1024
"""Maximum bytes that may wait for a worker to read them; beyond that the worker is killed."""


async def main(settings: BalancerSettings, argv: Sequence[str], shutdown: Shutdown) -> int:
    """Run the workers until `shutdown`, and return the exit code. Raises `StartupError`."""
    with ExitStack() as ports:
        inference = reserve(settings.inference_addr, "--inference-addr", ports)
        management = reserve(settings.management_addr, "--management-addr", ports)
        async with asyncio.TaskGroup() as group:
            place = Place(0, settings.workers, "", inference, management)
            return await Supervisor([*PROGRAM, *argv], place, group).run(shutdown)


def reserve(address: Address, flag: str, until: ExitStack) -> Address:
    """Reserve the port for processes of this user until `until` closes.

    Returns the address with its port.

    This process does not listen: the system spreads connections over the listening sockets of a
    port (`SO_REUSEPORT`). A bound socket that does not listen gets no connections, but it knows
    the port's number if any free port was asked for.

    Raises a `StartupError` that names `flag`, also if another program listens there.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        port = address.port
        for family, kind, protocol, _, at in found:
            port = _bound(family, kind, protocol, (at[0], port, *at[2:]), until)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartupError(f"{flag}: cannot listen on {address}: {reason}") from error
    return Address(address.host, port)


def _bound(family: int, kind: int, protocol: int, at: tuple[object, ...], until: ExitStack) -> int:
    """Bind twice, since otherwise another program of this user could share the port."""
    with socket.socket(family, kind, protocol) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(at)
        at = (at[0], alone.getsockname()[1], *at[2:])
    kept = until.enter_context(socket.socket(family, kind, protocol))
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(at)
    return int(kept.getsockname()[1])


class Hub:
    """Knows which workers live and which one leads, if their store does not know it.

    Workers are known by their numbers; times are in seconds. Invariants: the leading worker runs;
    epochs grow.
    """

    def __init__(self) -> None:
        self._beats: dict[int, tuple[Beat, float, float]] = {}
        self._leader: int | None = None
        self._epoch = 0

    def beat(self, worker: int, beat: Beat, now: float, wall: float) -> tuple[Peer, ...]:
        """Take a worker's beat. `wall` is the present time, in seconds since 1970.

        Returns all workers with a beat.
        """
        _, _, since = self._beats.get(worker, (beat, now, wall))
        self._beats[worker] = (beat, now, since)
        return tuple(
            Peer(beat, max(0.0, now - at), since)
            for _, (beat, at, since) in sorted(self._beats.items())
        )

    def lead(self, worker: int, above: int) -> int | None:
        """Let a worker lead, unless another worker leads. Returns its epoch."""
        if self._leader not in (None, worker):
            return None
        self._leader = worker
        self._epoch = max(self._epoch, above) + 1
        return self._epoch

    def left(self, worker: int) -> None:
        """Note that a worker has ended, or is about to."""
        self._beats.pop(worker, None)
        if self._leader == worker:
            self._leader = None


class Supervisor:
    """Runs workers with `command`; `place` has the parts of their places that all share."""

    def __init__(self, command: Sequence[str], place: Place, group: asyncio.TaskGroup) -> None:
        self._command = command
        self._place = place
        self._group = group
        self._crew = Crew(place.num)
        self._hub = Hub()
        self._processes: dict[int, Process] = {}
        self._runs: dict[int, str] = {}
        self._facts: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, shutdown: Shutdown) -> int:
        """Run until all workers have ended, after `shutdown` or because they cannot start.

        Returns the exit code.
        """
        stopping = self._group.create_task(self._stop_when(shutdown))
        shutdown.on_refresh(self._refresh)
        self._carry_out(self._crew.begin())
        code = await self._code
        stopping.cancel()
        return code

    async def _stop_when(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._carry_out(self._crew.stop())

    def _refresh(self) -> None:
        for worker in self._processes:
            self._say(worker, Refresh())

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start(worker):
                    self._group.create_task(self._serve(worker))
                case Halt(worker):
                    self._say(worker, Stop())
                case Announce():
                    lifecycle.ready("balancer", **self._facts)
                case Quit(code):
                    self._code.set_result(code)
                case _:
                    assert_never(decision)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self._crew.next_deadline()) is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._carry_out(self._crew.tick(_now()))

    # ---- one worker

    async def _serve(self, worker: int) -> None:
        """Run a worker's process from its start to its end."""
        run = uuid.uuid4().hex
        place = Place(worker, self._place.num, run, self._place.inference, self._place.management)
        try:
            process = await self._start(place)
        except OSError as error:
            logger.error(
                "a worker process could not be started: %s", error, extra=context(worker=worker)
            )
            self._ended(worker, 1)
            return
        self._processes[worker], self._runs[worker] = process, run
        logger.info("a worker starts", extra=context(worker=worker, pid=process.pid))
        if self._crew.is_stopping:
            self._say(worker, Stop())
        await self._hear(worker, process)
        self._ended(worker, await process.wait())

    async def _hear(self, worker: int, process: Process) -> None:
        """Read a worker's lines. The last line of a killed worker may be incomplete."""
        if process.stdout is None:
            return
        try:
            async for line in process.stdout:
                self._heard(worker, decode_to_parent(line))
        except ValueError:
            logger.exception(
                "a worker process is killed: it sent a message that its parent cannot read",
                extra=context(worker=worker),
            )
            _kill(process)

    async def _start(self, place: Place) -> Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            limit=MOST_BYTES,
            env=os.environ | {VARIABLE: place.text()},
            # A terminal sends Ctrl-C to the whole process group: workers get it as a message.
            start_new_session=True,
        )

    def _ended(self, worker: int, code: int) -> None:
        self._processes.pop(worker, None)
        self._runs.pop(worker, None)
        self._hub.left(worker)
        decisions = self._crew.ended(worker, code, _now())
        if self._crew.next_deadline() is not None:
            pause = self._crew.pause_of(worker)
            about = context(worker=worker, code=code, pause=pause)
            logger.error(
                "a worker process has ended and will be started again after a pause", extra=about
            )
        self._tell_living()
        self._carry_out(decisions)

    def _heard(self, worker: int, message: ToParent) -> None:
        match message:
            case Ready(facts):
                self._facts = facts
                decisions = self._crew.ready(worker, _now())
                self._tell_living()
                self._carry_out(decisions)
            case Spread():
                for each in self._processes:
                    self._say(each, message)
            case Beating(id, beat):
                self._say(worker, Peers(id, self._hub.beat(worker, beat, _now(), time.time())))
            case Lead(id, above):
                self._say(worker, Granted(id, self._hub.lead(worker, above)))
            case Leave():
                self._hub.left(worker)
            case _:
                assert_never(message)

    def _tell_living(self) -> None:
        living = Living(tuple(self._runs[each] for each in self._crew.serving))
        for worker in self._processes:
            self._say(worker, living)

    def _say(self, worker: int, message: ToWorker) -> None:
        process = self._processes.get(worker)
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.write(encode(message))
        if process.stdin.transport.get_write_buffer_size() > MOST_WAITING:
            logger.error(
                "a worker process is killed: it does not read the messages of its parent",
                extra=context(worker=worker),
            )
            _kill(process)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        process.kill()


def _now() -> float:
    return asyncio.get_running_loop().time()
