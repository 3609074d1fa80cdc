"""Use, temperature and memory of NVIDIA's cards, from their driver's library (NVML).

The package `nvidia-ml-py` calls the library. If the package, the library or a card's answer is
missing, the figures are unknown, which is no error. A driver may hang, so it is asked on a
separate thread. Neither callers nor the end of the process wait for that thread.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

PATIENCE = 1.0
"""Seconds to wait for one reading; a later result is dropped."""

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Card:
    """Use from 0 to 1, temperature in °C, and bytes used by programs other than this agent."""

    use: float | None = None
    temperature: float | None = None
    others: int | None = None


Cards = dict[str, Card]
"""Cards by their places on the bus, such as `0000:c1:00.0`."""


def nvml() -> Any | None:
    """Return the package's module; `None` if it is not installed."""
    return None if find_spec("pynvml") is None else import_module("pynvml")


class NvidiaCards:
    """Reads the cards; nothing starts before the first reading."""

    def __init__(
        self,
        load: Callable[[], Any | None] = nvml,
        *,
        patience: float = PATIENCE,
        root: Path = ROOT,
    ) -> None:
        self._load = load
        self._patience = patience
        self._root = root
        self._asked: SimpleQueue[Future[Cards]] = SimpleQueue()
        self._reading: Future[Cards] | None = None

    def read(self) -> Cards:
        """Return the cards' figures. Blocks, but only once for a reading that does not come."""
        if self._reading is None:
            Thread(target=self._serve, name="nvml", daemon=True).start()
        elif not self._reading.done():
            return {}
        self._reading = Future()
        self._asked.put(self._reading)
        try:
            return self._reading.result(self._patience)
        except TimeoutError:
            return {}

    def _serve(self) -> None:
        library = self._load()
        driver = None if library is None else _Driver(library, self._root)
        while True:
            reading = self._asked.get()
            reading.set_result({} if driver is None else driver.cards())


class _Driver:
    """The driver's library. If its initialisation failed, it is tried again."""

    def __init__(self, library: Any, root: Path) -> None:
        self._nvml = library
        # The second is raised for functions that an older driver lacks, and is no `NVMLError`.
        self._errors = (library.NVMLError, library.NVMLLibraryMismatchError)
        self._root = root
        self._has_begun = False

    def cards(self) -> Cards:
        nvml = self._nvml
        try:
            if not self._has_begun:
                nvml.nvmlInit()
                self._has_begun = True
            found = [self._card(index) for index in range(nvml.nvmlDeviceGetCount())]
        except self._errors:  # no library, no driver, or another version of it by now
            self._has_begun = False
            return {}
        return dict(each for each in found if each is not None)

    def _card(self, index: int) -> tuple[str, Card] | None:
        """Return a card; `None` if it is lost, or not visible in this container."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            place = bus_place(nvml.nvmlDeviceGetPciInfo(handle).busId)
        except self._errors:
            return None
        use = self._told(nvml.nvmlDeviceGetUtilizationRates, handle)
        temperature = self._told(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        return place, Card(
            use=None if use is None else min(1.0, use.gpu / 100),
            temperature=None if temperature is None else float(temperature),
            others=self._others(handle),
        )

    def _others(self, handle: Any) -> int | None:
        """Return the bytes that other programs use; `None` if a container hides process ids."""
        taken: dict[int, int | None] = {}
        for ask in (
            self._nvml.nvmlDeviceGetComputeRunningProcesses,
            self._nvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for each in self._told(ask, handle) or ():
                taken[each.pid] = each.usedGpuMemory
        if os.getpid() not in taken:
            return None
        sizes = [size for pid, size in taken.items() if not is_of_this_agent(pid, self._root)]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _told(self, ask: Callable[..., Any], *arguments: Any) -> Any | None:
        """Call `ask`; return `None` if the card or the driver does not support it."""
        try:
            return ask(*arguments)
        except self._errors:
            return None


def bus_place(text: str | bytes) -> str:
    """Return the place as ggml and Linux write it: in lower case, with a short domain."""
    place = text.decode() if isinstance(text, bytes) else text
    domain, _, rest = place.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def is_of_this_agent(pid: int, root: Path = ROOT) -> bool:
    """Return whether the process is this one, or another engine process of the same supervisor."""
    return pid == os.getpid() or _parent(pid, root) == str(os.getppid())


def _parent(pid: int, root: Path) -> str | None:
    try:
        stat = (root / f"proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it has ended, or is another's
        return None
    fields = stat.rpartition(")")[2].split()  # its name, before that, may have spaces
    return fields[1] if len(fields) > 1 else None
