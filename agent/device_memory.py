"""The memory of this host and of its GPUs, how busy and how warm they are.

A driver may take its time to answer. So it is asked on another thread, beside the engine's work,
and seldom.
"""

import logging
from asyncio import Future
from collections.abc import Callable

from ..shared.models.assignments import MAX_DEVICES
from ..shared.reports.statistics import DeviceMemory
from .engine.llama.devices import loaded_devices
from .host_facts import available_memory, total_memory
from .sensors import ProcessorUse, gpu_figures, processor_temperature

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two measurements."""

Devices = tuple[DeviceMemory, ...]


class Probe:
    """Measures the host and the GPUs that llama.cpp finds."""

    def __init__(self) -> None:
        self._processors = ProcessorUse()

    def measure(self) -> Devices:
        """All of them as they are now. Blocks."""
        gpus = [each for _, each in loaded_devices().gpus()][: MAX_DEVICES - 1]
        use, temperature = gpu_figures() if len(gpus) == 1 else (None, None)
        return (
            self._host(),
            *(
                DeviceMemory(
                    name=each.name,
                    kind="igpu" if each.kind == "igpu" else "gpu",
                    total=each.memory,
                    free=min(each.free, each.memory),
                    use=None if each.is_remote else use,
                    temperature=None if each.is_remote else temperature,
                )
                for each in gpus
            ),
        )

    def _host(self) -> DeviceMemory:
        total = total_memory() or 0
        free = available_memory()
        return DeviceMemory(
            name="CPU",
            kind="cpu",
            total=total,
            free=min(total, total if free is None else free),
            use=self._processors.read(),
            temperature=processor_temperature(),
        )


class DeviceMeter:
    """`present` is what was measured last. `start` runs what it gets on another thread."""

    def __init__(
        self,
        start: Callable[[Callable[[], Devices]], "Future[Devices]"],
        on_measured: Callable[[], None],
    ) -> None:
        self.present: Devices = ()
        self._start = start
        self._on_measured = on_measured
        self._probe = Probe()
        self._running: Future[Devices] | None = None

    def ask(self) -> None:
        """Measure, unless that is being done."""
        if self._running is None:
            self._running = self._start(self._probe.measure)
            self._running.add_done_callback(self._measured)

    def _measured(self, future: "Future[Devices]") -> None:
        self._running = None
        if future.cancelled():
            return
        if error := future.exception():
            logger.warning("the memory of devices could not be measured: %s", error)
        else:
            self.present = future.result()
            self._on_measured()
