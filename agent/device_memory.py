"""The memory, use and temperature of this host and of its GPUs.

A driver may answer slowly. So drivers are asked seldom, and on a separate thread.
"""

import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from pathlib import Path

from ..shared.models.assignments import MAX_DEVICES
from ..shared.reports.statistics import DeviceMemory
from .engine.llama.devices import FoundDevice, loaded_devices
from .host_facts import available_memory, total_memory
from .nvidia import Card, Cards, NvidiaCards
from .sensors import ROOT, ProcessorUse, gpu_figures, processor_temperature

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two measurements."""

Devices = tuple[DeviceMemory, ...]


def _found() -> list[FoundDevice]:
    return [each for _, each in loaded_devices().gpus()]


def is_nvidia(gpu: FoundDevice) -> bool:
    """Return whether the GPU is a card of this host with NVIDIA's driver."""
    names = gpu.name.startswith("CUDA") or "nvidia" in gpu.description.lower()
    return names and not gpu.is_remote


class Probe:
    """Measures the host and the GPUs that llama.cpp finds."""

    def __init__(
        self,
        find: Callable[[], list[FoundDevice]] = _found,
        cards: NvidiaCards | None = None,
        root: Path = ROOT,
    ) -> None:
        self._processors = ProcessorUse(root)
        self._find = find
        self._cards = cards or NvidiaCards()
        self._root = root

    def measure(self) -> Devices:
        """Measure the memory of all devices. Blocks."""
        gpus = self._find()[: MAX_DEVICES - 1]
        cards = self._cards.read() if any(map(is_nvidia, gpus)) else {}
        return (self._host(), *(self._gpu(each, gpus, cards) for each in gpus))

    def _gpu(self, gpu: FoundDevice, gpus: Sequence[FoundDevice], cards: Cards) -> DeviceMemory:
        card = self._card(gpu, gpus, cards)
        return DeviceMemory(
            name=gpu.name,
            kind="igpu" if gpu.kind == "igpu" else "gpu",
            total=gpu.memory,
            free=min(gpu.free, gpu.memory),
            others=card.others,
            use=card.use,
            temperature=card.temperature,
        )

    def _card(self, gpu: FoundDevice, gpus: Sequence[FoundDevice], cards: Cards) -> Card:
        """Return a card's figures; unknown if the card is remote or cannot be told from others."""
        is_alone = len(gpus) == 1
        if gpu.is_remote or (gpu.place is None and not is_alone):
            return Card()
        if gpu.place in cards:
            return cards[gpu.place]
        if gpu.place is None and is_nvidia(gpu):
            return next(iter(cards.values())) if len(cards) == 1 else Card()
        return Card(*gpu_figures(gpu.place, self._root))

    def _host(self) -> DeviceMemory:
        total = total_memory() or 0
        free = available_memory()
        return DeviceMemory(
            name="CPU",
            kind="cpu",
            total=total,
            free=min(total, total if free is None else free),
            use=self._processors.read(),
            temperature=processor_temperature(self._root),
        )


class DeviceMeter:
    """Measures on a separate thread. `present` is the last measurement.

    `start` runs a function on another thread.
    """

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
        """Measure, unless a measurement is running."""
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
