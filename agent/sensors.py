"""The use and temperature of this host, from Linux; unknown on other systems."""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/")

_PROCESSORS = {"coretemp", "k10temp", "zenpower", "cpu_thermal", "cputemp"}
"""Names of the kernel's drivers for sensors in processors (hwmon)."""

_PROCESSOR_ZONES = ("x86_pkg_temp", "cpu", "soc")
"""Prefixes of the types of processors' thermal zones."""

_HOTTEST = 200.0
"""Maximum valid temperature in °C; a sensor that reports more is broken or missing."""


class ProcessorUse:
    """The share of all cores' time used between two readings."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._last: tuple[int, int] | None = None

    def read(self) -> float | None:
        """Return the use from 0 to 1 since the last reading; `None` at the first reading."""
        last, self._last = self._last, self._times()
        if last is None or self._last is None:
            return None
        busy, total = (new - old for new, old in zip(self._last, last, strict=True))
        return min(1.0, max(0.0, busy / total)) if total > 0 else None

    def _times(self) -> tuple[int, int] | None:
        """Return busy and all ticks of all cores since the start.

        Waiting for a disk is not busy.
        """
        name, *ticks = _text(self._root / "proc/stat").partition("\n")[0].split() or [""]
        if name != "cpu" or len(ticks) < 5 or not all(each.isdigit() for each in ticks):
            return None
        # The guests' ticks, behind the eighth, are among the others.
        numbers = [int(each) for each in ticks[:8]]
        return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def processor_temperature(root: Path = ROOT) -> float | None:
    """Return the hottest sensor of the processors, in °C."""
    chips = root.glob("sys/class/hwmon/hwmon*")
    found = [
        sensor
        for chip in chips
        if _text(chip / "name").strip() in _PROCESSORS
        for sensor in chip.glob("temp*_input")
    ]
    zones = root.glob("sys/class/thermal/thermal_zone*")
    beside = [each / "temp" for each in zones if _type(each).startswith(_PROCESSOR_ZONES)]
    return _hottest(found) if found else _hottest(beside)


def gpu_figures(place: str | None, root: Path = ROOT) -> tuple[float | None, float | None]:
    """Return use (0 to 1) and temperature (°C) of the GPU at this `place` on the bus.

    If `place` is unknown, the only GPU with sensors is read. With several GPUs the result is
    unknown, since their order differs from llama.cpp's.
    """
    at = "sys/class/drm/card[0-9]/device" if place is None else f"sys/bus/pci/devices/{place}"
    cards = [
        (card, sensors)
        for card in sorted(root.glob(at))
        if (sensors := [*card.glob("hwmon/hwmon*/temp*_input")])
    ]
    if len(cards) != 1:
        return None, None
    [(card, sensors)] = cards
    percent = _text(card / "gpu_busy_percent").strip()
    use = int(percent) / 100 if percent.isdigit() and int(percent) <= 100 else None
    return use, _hottest(sensors)


def _hottest(sensors: Iterable[Path]) -> float | None:
    """Return the highest plausible value; sensors count in thousandths of a degree."""
    texts = (_text(each).strip() for each in sensors)
    degrees = (int(text) / 1000 for text in texts if text.isdigit())
    return max((each for each in degrees if 0 < each < _HOTTEST), default=None)


def _type(zone: Path) -> str:
    return _text(zone / "type").strip().lower()


def _text(path: Path) -> str:
    """Return a sensor's text; empty if the sensor is gone, or cannot be read while it sleeps."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
