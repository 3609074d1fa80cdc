"""The makers of this host's GPUs by the system's files, whether or not llama.cpp can use them."""

from pathlib import Path

ROOT = Path("/")

SMALLEST = 2 * 2**30
"""Minimum bytes of memory of an AMD GPU: GPUs built into processors have less."""

_MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_DISPLAY = "0x03"
"""The beginning of the class of a device that draws or computes."""


def gpu_makers(root: Path = ROOT) -> tuple[str, ...]:
    """Return `NVIDIA`, `AMD`, both or none; in a container only visible devices count."""
    found = {maker for device in _devices(root) if (maker := _maker(device))}
    if any((root / "dev").glob("nvidia[0-9]*")):
        found.add("NVIDIA")
    return tuple(sorted(found))


def _devices(root: Path) -> list[Path]:
    return list((root / "sys/bus/pci/devices").glob("*"))


def _maker(device: Path) -> str | None:
    maker = _MAKERS.get(_text(device / "vendor"))
    if maker is None or not _text(device / "class").startswith(_DISPLAY):
        return None
    memory = _text(device / "mem_info_vram_total")
    if maker == "AMD" and memory.isdigit() and int(memory) < SMALLEST:
        return None
    return maker


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
