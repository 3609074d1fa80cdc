"""The agent's first process: one place per model that it serves, and a spare place.

All native code that can crash runs in engine processes; each place starts its own. Memory is
shared (`room.py`). A spare place tells balancers that one more model may be served on this host.
So a spare place exists while there are fewer places than `--models-max`, if the host's memory is
known.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from uuid import uuid4

from ...shared import lifecycle
from ...shared.inference import AgentId
from ...shared.lifecycle import Shutdown
from ...shared.messages import Issue
from ...shared.models.assignments import HOST, HostFacts
from ...shared.reports.statistics import DeviceMemory
from ..models.port import ModelFiles
from ..settings import AgentSettings
from .decisions import Exit
from .engine_run import EngineProcess, StartProcess, start_engine
from .fit_reader import FitReader
from .place import Place
from .restarts import Restarts
from .room import Room

logger = logging.getLogger(__name__)

MEASURE_INTERVAL = 60.0
"""Seconds between two measurements of a host without an engine, because they wake drivers."""

Measure = Callable[[], Awaitable[tuple[DeviceMemory, ...]]]


async def main(
    settings: AgentSettings,
    shutdown: Shutdown,
    *,
    facts: HostFacts,
    files: ModelFiles,
    issues: tuple[Issue, ...] = (),
    start: StartProcess = start_engine,
    make_restarts: Callable[[], Restarts] = Restarts,
    measure: Measure | None = None,
    measure_interval: float = MEASURE_INTERVAL,
) -> int:
    """Keep engine processes running until `shutdown` is requested. Returns the exit code.

    `issues` are the host's own permanent issues. `measure` returns the host's memory while it has
    no engine. Raises `StartupError` if a balancer refuses this agent for good.
    """
    async with asyncio.TaskGroup() as group:
        supervisor = _Supervisor(
            settings, facts, files, group, issues=issues, start=start, make_restarts=make_restarts
        )
        try:
            return await supervisor.run(shutdown, measure, measure_interval)
        finally:
            supervisor.leave()


class _Supervisor:
    """The places of this host; see `place.Host`. The first place has the host's id."""

    def __init__(
        self,
        settings: AgentSettings,
        facts: HostFacts,
        files: ModelFiles,
        group: asyncio.TaskGroup,
        *,
        issues: tuple[Issue, ...],
        start: StartProcess,
        make_restarts: Callable[[], Restarts],
    ) -> None:
        self.settings = settings
        self.facts = facts
        self.files = files
        self.fits = FitReader(settings, group)
        self.issues = issues
        self.group = group
        self.id = AgentId(uuid4().hex)
        parts = {HOST: facts.memory} | {each.name: each.memory for each in facts.devices}
        self.room = Room(sum(parts.values()), parts)
        self.engine_ids: Iterator[int] = count(1)
        self._start = start
        self._make_restarts = make_restarts
        self._most = 1 if facts.is_pinned or not self.room.memory else settings.models_max
        self._places = [Place(self, self.id)]
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self._is_announced = False
        self._is_looking = False
        self._is_measured = False

    async def run(self, shutdown: Shutdown, measure: Measure | None, interval: float) -> int:
        """Run until the agent ends. Returns the exit code."""
        shutdown.on_refresh(self._refresh)
        helpers = [self.group.create_task(self._stop_when_asked(shutdown))]
        if measure is not None and not self.facts.is_pinned:
            helpers.append(self.group.create_task(self._measure(measure, interval)))
        self._places[0].start()
        verdict = await self._exit
        for helper in helpers:
            helper.cancel()
        if verdict.complaint is not None:
            logger.error("%s", verdict.complaint)
        return verdict.code

    def leave(self) -> None:
        """Disconnect, and stop everything that still runs."""
        self.fits.stop()
        for place in self._places:
            place.leave()

    def _refresh(self) -> None:
        for place in self._places:
            place.refresh()

    async def _stop_when_asked(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._is_stopping = True
        for place in list(self._places):
            place.stop()

    async def _measure(self, measure: Measure, interval: float) -> None:
        while True:
            if not self.num_in_use:
                devices = await measure()
                if not self.num_in_use:
                    self._is_measured = True
                    self._places[0].measured(devices)
            await asyncio.sleep(interval)

    # ---- for places

    async def start_process(self) -> EngineProcess:
        """Start an engine process."""
        return await self._start()

    def make_restarts(self) -> Restarts:
        """Return the policy that decides when an engine restarts."""
        return self._make_restarts()

    @property
    def num_in_use(self) -> int:
        """The number of places with engines, which share the threads."""
        return sum(place.has_engines for place in self._places)

    def announce(self, *, slots: int, model: str) -> None:
        """Report once that the agent is ready, because a balancer accepted a place."""
        if not self._is_announced:
            self._is_announced = True
            settings = self.settings
            lifecycle.ready(settings.program, name=settings.name, slots=slots, model=model)

    def changed(self) -> None:
        """Check all places after the current event, because engines may have loaded or ended."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def exits(self, place: Place, exit: Exit) -> None:
        """End the agent with its last place; if others have engines, drop only the place."""
        others = [each for each in self._places if each is not place]
        if self._is_stopping and others:
            self._drop(place)
        elif not self._is_stopping and any(each.has_engines for each in others):
            logger.error("%s", exit.complaint or "an engine has ended for good")
            self._drop(place)
            self.changed()
        elif not self._exit.done():
            self._exit.set_result(exit)

    def _drop(self, place: Place) -> None:
        self._places.remove(place)
        place.give_up()
        self._count_places()

    def _count_places(self) -> None:
        """Tell each place the number of places, because a new balancer waits for all of them."""
        for place in self._places:
            place.host_changed(len(self._places))

    # ---- number of places

    def _look(self) -> None:
        self._is_looking = False
        if self._is_stopping or self._exit.done():
            return
        for place in [each for each in self._places if each.waits_for_room]:
            place.room_changed()
        for place in self._places:
            place.share_threads()
        if self._is_measured and self.num_in_use:
            self._is_measured = False  # an engine measures from now on
            for place in self._places:
                place.measured(())
        spare = [each for each in self._places if each.is_spare]
        for place in spare[1:]:
            self._drop(place)
        if not spare and len(self._places) < self._most:
            self._places.append(place := Place(self, AgentId(uuid4().hex)))
            self._count_places()
            place.start()
