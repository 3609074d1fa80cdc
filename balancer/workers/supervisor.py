"""The parent of the workers: starts them, starts lost ones again, and passes on what they tell."""

import asyncio
import logging
import os
import sys
import time
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import assert_never

from ...shared import lifecycle
from ...shared.lifecycle import Shutdown
from ...shared.log import context
from ..settings import BalancerSettings
from .crew import Announce, Crew, Decision, Halt, Quit, Start
from .hub import Hub
from .messages import (
    MOST_BYTES,
    Beating,
    Granted,
    Lead,
    Leave,
    Living,
    Peers,
    Ready,
    Spread,
    Stop,
    ToParent,
    ToWorker,
    decode_to_parent,
    encode,
)
from .place import VARIABLE, Place
from .shared_ports import reserve

logger = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", __name__.removesuffix(".workers.supervisor"))

MOST_WAITING = 16 * 1024 * 1024
"""Bytes that may wait for a worker to read them; one that reads nothing any more is killed."""


async def main(settings: BalancerSettings, argv: Sequence[str], shutdown: Shutdown) -> int:
    """Run the workers until `shutdown`; the exit code. Raises `StartupError`."""
    with ExitStack() as ports:
        inference = reserve(settings.inference_addr, "--inference-addr", ports)
        management = reserve(settings.management_addr, "--management-addr", ports)
        async with asyncio.TaskGroup() as group:
            place = Place(0, settings.workers, "", inference, management)
            return await Supervisor([*PROGRAM, *argv], place, group).run(shutdown)


class Supervisor:
    """`command` is what a worker runs; `place` has all of a worker's but its number and run."""

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
        """Until all have ended, after `shutdown` or because they cannot start."""
        stopping = self._group.create_task(self._stop_when(shutdown))
        self._carry_out(self._crew.begin())
        code = await self._code
        stopping.cancel()
        return code

    async def _stop_when(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._carry_out(self._crew.stop())

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
        """From the start of its process to its end."""
        run = uuid.uuid4().hex
        place = Place(worker, self._place.num, run, self._place.inference, self._place.management)
        try:
            process = await self._start(place)
        except OSError as error:
            logger.error("a worker cannot start: %s", error, extra=context(worker=worker))
            self._ended(worker, 1)
            return
        self._processes[worker], self._runs[worker] = process, run
        logger.info("a worker starts", extra=context(worker=worker, pid=process.pid))
        if self._crew.is_stopping:
            self._say(worker, Stop())
        await self._hear(worker, process)
        self._ended(worker, await process.wait())

    async def _hear(self, worker: int, process: Process) -> None:
        """All that it says. Of one that is killed the last line may be torn."""
        if process.stdout is None:
            return
        try:
            async for line in process.stdout:
                self._heard(worker, decode_to_parent(line))
        except ValueError:
            logger.exception("a worker cannot be understood", extra=context(worker=worker))
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
            logger.error("a worker has ended, and starts again after a pause", extra=about)
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
            logger.error("a worker does not read what it is told", extra=context(worker=worker))
            _kill(process)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        process.kill()


def _now() -> float:
    return asyncio.get_running_loop().time()
