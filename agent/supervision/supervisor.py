"""The agent's first process: starts the engine process, and restarts it when it crashes.

All native code that can crash runs in the engine process. Between two engine processes the
supervisor connects to the balancers in its place (`standby`), without slots and with an issue that
says why.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, assert_never
from uuid import uuid4

from ...shared import lifecycle
from ...shared.inference import AgentId
from ...shared.lifecycle import Shutdown
from ...shared.reports.model_info import ModelInfo
from ..settings import AgentSettings
from .child import Child
from .restarts import Quit, Restart, Restarts
from .standby import Standby
from .supervisor_protocol import Begin, Failed, Loaded, Order, Ready, Report, Stop, Tell

logger = logging.getLogger(__name__)

CANNOT_START = 71
"""In place of an exit code, for a process that the system could not start."""


class EngineProcess(Protocol):
    """What is needed of an engine process; see `child.Child`."""

    def say(self, order: Order) -> None: ...
    def reports(self) -> AsyncIterator[Report]: ...
    async def end(self) -> int: ...


async def main(
    settings: AgentSettings,
    shutdown: Shutdown,
    *,
    start: Callable[[], Awaitable[EngineProcess]] = Child.start,
    restarts: Restarts | None = None,
) -> int:
    """Keep an engine process running until `shutdown` is requested. Returns the exit code.

    Raises `StartupError` when a balancer refuses this agent for good.
    """
    async with asyncio.TaskGroup() as group:
        agent_id = AgentId(uuid4().hex)
        standby = Standby(settings, agent_id, group)
        supervisor = _Supervisor(
            Begin(agent_id=agent_id, settings=settings),
            shutdown,
            standby=standby,
            start=start,
            restarts=restarts or Restarts(),
        )
        try:
            return await supervisor.run()
        finally:
            await standby.leave()


class _Supervisor:
    def __init__(
        self,
        begin: Begin,
        shutdown: Shutdown,
        *,
        standby: Standby,
        start: Callable[[], Awaitable[EngineProcess]],
        restarts: Restarts,
    ) -> None:
        self._begin = begin
        self._shutdown = shutdown
        self._standby = standby
        self._start = start
        self._restarts = restarts
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        while isinstance(verdict := await self._live(), Restart):
            for issue in self._restarts.issues:
                logger.error("%s", issue.message)
            self._standby.show(self._restarts.issues)
            if await self._is_stopped_within(verdict.pause):
                return 0
        if verdict.complaint is not None:
            logger.error("%s", verdict.complaint)
        return verdict.code

    async def _live(self) -> Restart | Quit:
        """One engine process, from its start to its end."""
        try:
            child = await self._start()
        except OSError as error:
            logger.error("the system cannot start a process: %s", error)
            return self._ended(CANNOT_START, str(error))
        try:
            reason = await self._follow(child)
        finally:
            self._disarm()
            code = await child.end()
        return self._ended(code, reason)

    def _ended(self, code: int, reason: str | None) -> Restart | Quit:
        return self._restarts.ended(code, reason, is_stopping=self._shutdown.requested.is_set())

    async def _follow(self, child: EngineProcess) -> str | None:
        """Returns the reason that it reported, when it has ended."""
        reason = None
        async with asyncio.TaskGroup() as group:
            stopper = group.create_task(self._pass_on_stop(child))
            child.say(self._begin)
            async for report in child.reports():
                match report:
                    case Loaded(model=model):
                        await self._hand_over(child, model)
                    case Ready(model=name):
                        self._announce(name)
                    case Failed(reason=words):
                        reason = words
                    case _:
                        assert_never(report)
            stopper.cancel()
        return reason

    async def _pass_on_stop(self, child: EngineProcess) -> None:
        await self._shutdown.requested.wait()
        child.say(Stop())

    async def _hand_over(self, child: EngineProcess, model: ModelInfo) -> None:
        """The engine process is the agent now. Should it crash, the stand-in names its model."""
        await self._standby.leave()
        self._standby.stand_in_for(model)
        self._restarts.loaded(time.monotonic())
        child.say(Tell(issues=self._restarts.issues))
        self._arm(child)

    def _announce(self, model: str) -> None:
        if self._restarts.ready():
            settings = self._begin.settings
            lifecycle.ready(settings.program, name=settings.name, slots=settings.slots, model=model)

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._shutdown.requested.wait()
        except TimeoutError:
            return False

    # ---- the time after which failures are forgotten

    def _arm(self, child: EngineProcess) -> None:
        deadline = self._restarts.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, child)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, child: EngineProcess) -> None:
        self._restarts.tick(time.monotonic())
        child.say(Tell(issues=self._restarts.issues))
        self._arm(child)
