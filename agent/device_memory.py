"""The memory of this host and of its GPUs, measured beside the engine's work.

A driver may take its time to answer. So it is asked on another thread, seldom, and only while the
engine computes: what others take in the meantime is seen with the next step.
"""

import logging
from asyncio import Future
from collections.abc import Callable

from ..shared.models.assignments import MAX_DEVICES
from ..shared.reports.statistics import DeviceMemory
from .engine.llama.devices import loaded_devices
from .host_facts import available_memory, total_memory

logger = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between two measurements, at least."""

Devices = tuple[DeviceMemory, ...]


def measure() -> Devices:
    """The memory of the host and of the GPUs that llama.cpp finds. Blocks."""
    total = total_memory() or 0
    free = available_memory()
    host = DeviceMemory(
        name="CPU", kind="cpu", total=total, free=min(total, total if free is None else free)
    )
    gpus = [
        DeviceMemory(
            name=each.name,
            kind="igpu" if each.kind == "igpu" else "gpu",
            total=each.memory,
            free=min(each.free, each.memory),
        )
        for _, each in loaded_devices().gpus()
    ]
    return (host, *gpus[: MAX_DEVICES - 1])


class DeviceMeter:
    """`present` is what was measured last. `start` runs what it gets on another thread."""

    def __init__(self, start: Callable[[Callable[[], Devices]], "Future[Devices]"]) -> None:
        self.present: Devices = ()
        self._start = start
        self._running: Future[Devices] | None = None
        self._next = 0.0

    def ask(self, now: float) -> None:
        """Measure, unless that was done a moment ago, or is being done."""
        if self._running is None and now >= self._next:
            self._next = now + INTERVAL
            self._running = self._start(measure)
            self._running.add_done_callback(self._measured)

    def _measured(self, future: "Future[Devices]") -> None:
        self._running = None
        if future.cancelled():
            return
        if error := future.exception():
            logger.warning("the memory of devices could not be measured: %s", error)
        else:
            self.present = future.result()
