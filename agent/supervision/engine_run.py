"""One engine across all its processes: starts a process, follows it, restarts it after a crash."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, assert_never

from ...shared.log import context
from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from ..child import Child, program
from ..link.decisions import HostOrder
from .decisions import EngineId
from .restarts import Quit, Restart, Restarts
from .stall_watch import StallWatch
from .supervisor_protocol import (
    ORDERS,
    REPORTS,
    Alive,
    Begin,
    Changed,
    Dial,
    Failed,
    Loaded,
    Order,
    Ordered,
    Ready,
    Report,
    SecretGiven,
    Stop,
)

logger = logging.getLogger(__name__)

COMMAND = program("arriero.agent.supervision.engine_process")

MAX_REPORT = 4 * 2**20
"""Maximum bytes of a report: a forwarded order may contain a chat template."""


CANNOT_START = 71
"""Used as exit code for a process that the system could not start."""


GRACE = 15.0
"""Seconds that a process may exceed its drain timeout before it is killed."""


class EngineProcess(Protocol):
    """An engine process (`EngineChild`), or a fake of the tests."""

    def say(self, order: Order) -> None: ...
    def reports(self) -> AsyncIterator[Report]: ...
    def kill(self) -> None: ...
    async def end(self) -> int: ...


StartProcess = Callable[[], Awaitable[EngineProcess]]


class Watcher(Protocol):
    """Receives the events of an engine: the supervisor, or a test."""

    def on_loaded(self, id: EngineId, loaded: Loaded) -> None: ...
    def on_joined(self, id: EngineId) -> None: ...
    def on_ordered(self, order: HostOrder) -> None: ...
    def on_secret(self, balancer: str, secret: str) -> None: ...
    def on_changed(self, id: EngineId, assignment: Assignment, issue: Issue | None) -> None: ...
    def on_issues(self) -> None: ...
    def on_crashed(self, id: EngineId, code: int, reason: str | None) -> None: ...
    def on_ended(self, id: EngineId, quit: Quit, reason: str | None) -> None: ...


class EngineChild(Child):
    """A running engine process, as its supervisor sees it."""

    def say(self, order: Order) -> None:
        """Send an order; it is lost if the process has ended."""
        self.write(ORDERS.encode(order))

    async def reports(self) -> AsyncIterator[Report]:
        """Yield the process' reports until it ends."""
        async for line in self.lines():
            yield REPORTS.decode(line)


async def start_engine(command: Sequence[str] = COMMAND) -> EngineChild:
    """Start an engine process. Raises `OSError` if the system cannot start a process."""
    child = await EngineChild.start(command, longest_line=MAX_REPORT)
    logger.info("the engine process starts", extra=context(pid=child.pid))
    return child


class EngineRun:
    """One engine. `begin` makes the first order to each of its processes."""

    def __init__(
        self,
        id: EngineId,
        begin: Callable[[], Begin],
        watcher: Watcher,
        *,
        start: StartProcess,
        restarts: Restarts,
        grace: float = GRACE,
    ) -> None:
        self.id = id
        self._begin = begin
        self._watcher = watcher
        self._start = start
        self._restarts = restarts
        self._grace = grace
        self._watch: StallWatch | None = None
        """Watches the process for stalls once it has loaded its model."""
        self._child: EngineProcess | None = None
        self._is_retired = False
        self._is_restarted = False
        """True if the process was asked to end so that the next one starts."""
        self._is_over = False
        self._pause_is_over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._next_check: asyncio.TimerHandle | None = None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issues of crashes, and of a step that does not end."""
        return self._restarts.issues + (() if self._watch is None else self._watch.issues)

    @property
    def is_stalled(self) -> bool:
        """Return whether a step has taken so long that the engine should get no new requests."""
        return self._watch is not None and self._watch.is_stalled

    async def run(self) -> None:
        """Run until the engine is retired, ended, or fails for good. Calls `on_ended` before it
        returns.
        """
        while True:
            code, reason = await self._live()
            has_stalled = self._watch is not None and self._watch.is_overdue
            self._watch = None
            if self._is_restarted and not self._is_retired:
                self._is_restarted = False
                continue
            verdict = self._restarts.ended(
                code, reason, is_stopping=self._is_retired, has_stalled=has_stalled
            )
            if isinstance(verdict, Restart) and not self._is_over:
                self._pause_is_over.clear()
                for issue in self._restarts.issues:
                    logger.error("%s", issue.message)
                self._watcher.on_crashed(self.id, code, reason)
                await self._pass(verdict.pause)
                if not self._is_over:
                    continue
            if isinstance(verdict, Restart) or self._is_over:
                verdict = Quit(0)
            self._watcher.on_ended(self.id, verdict, reason)
            return

    def say(self, order: Order) -> None:
        """Send an order; it is lost if no process runs."""
        if self._child is not None:
            self._child.say(order)

    def retire(self, drain_timeout: float | None, most: float) -> None:
        """Let the process finish its requests and end; kill it `grace` seconds after `most`."""
        self._is_retired = True
        if self._child is None:
            self._is_over = True
            self._pause_is_over.set()
            return
        self._child.say(Stop(drain_timeout=drain_timeout))
        self._end_child_after(most + self._grace)

    def recall(self, dial: Dial) -> None:
        """Undo `retire` if the process has not ended: continue, and accept requests again."""
        if self._child is None or self._is_over:
            return
        self._is_retired = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._child.say(dial)

    def restart(self, drain_timeout: float) -> None:
        """Let the process finish its requests and end, then start the next process.

        A pause after a crash ends at once. The process is killed some time after `drain_timeout`
        seconds. A process that is still loading is not restarted.
        """
        if self._child is None:
            self._pause_is_over.set()
        elif self._watch is not None and not (self._is_retired or self._is_restarted):
            self._is_restarted = True
            self._child.say(Stop(drain_timeout=drain_timeout))
            self._end_child_after(drain_timeout + self._grace)

    def end(self) -> None:
        """End the engine at once."""
        self._is_retired = self._is_over = True
        self._pause_is_over.set()
        if self._child is not None:
            self._child.kill()

    def _end_child_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        logger.error("the engine process did not end in time, so it is killed")
        if self._is_restarted and not self._is_retired and self._child is not None:
            self._child.kill()  # the next one starts
        else:
            self.end()

    async def _live(self) -> tuple[int, str | None]:
        """Run one process from its start to its end; return its exit code and its reason."""
        try:
            child = await self._start()
        except OSError as error:
            logger.error("the system cannot start a process: %s", error)
            return CANNOT_START, str(error)
        try:
            reason = await self._follow(child)
        finally:
            self._child = None
            self._disarm()
            code = await child.end()
        return code, reason

    async def _follow(self, child: EngineProcess) -> str | None:
        """Follow the process until it ends; return the reason that it reported."""
        reason = None
        self._child = child
        if self._is_over:
            child.kill()
        begin = self._begin()
        child.say(begin)
        if self._is_retired:
            child.say(Stop())
        async for report in child.reports():
            match report:
                case Failed():
                    reason = report.reason
                case Alive(step=step):
                    self._heard(step)
                case _:
                    self._reported(report)
            if isinstance(report, Loaded):
                self._watch = StallWatch(begin.settings.step_timeout)
                self._check_later(self._watch)
        if reason is None and self._watch is not None and self._watch.is_overdue:
            return self._watch.reason
        return reason

    def _reported(self, report: Loaded | Ready | Ordered | Changed | SecretGiven) -> None:
        match report:
            case Loaded():
                self._restarts.loaded(time.monotonic())
                self._arm()
                self._watcher.on_loaded(self.id, report)
            case Ready():
                self._restarts.ready()
                self._watcher.on_joined(self.id)
            case SecretGiven(balancer=balancer, secret=secret):
                self._watcher.on_secret(balancer, secret)
            case Ordered(order=order):
                self._watcher.on_ordered(order)
            case Changed(assignment=assignment, issue=issue):
                self._watcher.on_changed(self.id, assignment, issue)
            case _:
                assert_never(report)

    async def _pass(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._pause_is_over.wait()

    # ---- stalls

    def _heard(self, step: int | None) -> None:
        was_stalled = self.is_stalled
        if self._watch is not None:
            self._watch.heard(step)
        if was_stalled and not self.is_stalled:
            logger.info("the engine responds again")
            self._watcher.on_issues()

    def _check_later(self, watch: StallWatch) -> None:
        loop = asyncio.get_running_loop()
        self._next_check = loop.call_later(watch.pause, self._check, watch)

    def _check(self, watch: StallWatch) -> None:
        was_stalled = watch.is_stalled
        watch.check()
        if watch.is_overdue and self._child is not None:
            logger.error("%s; the engine process is killed", watch.reason)
            self._child.kill()
            return
        self._check_later(watch)
        if watch.is_stalled and not was_stalled:
            for issue in watch.issues:
                logger.error("%s", issue.message)
            self._watcher.on_issues()

    # ---- forgetting failures

    def _arm(self) -> None:
        deadline = self._restarts.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _disarm(self) -> None:
        for timer in (self._timer, self._deadline, self._next_check):
            if timer is not None:
                timer.cancel()
        self._timer = self._deadline = self._next_check = None

    def _tick(self) -> None:
        self._restarts.tick(time.monotonic())
        self._watcher.on_issues()
        self._arm()
