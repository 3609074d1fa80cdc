"""Whose GPUs this host has by the system's files, whether or not llama.cpp can use them."""

from pathlib import Path

ROOT = Path("/")

SMALLEST = 2 * 2**30
"""Bytes of its own that a GPU of AMD has at least: those built into processors have fewer."""

_MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_DISPLAY = "0x03"
"""What the class of a device begins with that draws or computes."""


def gpu_makers(root: Path = ROOT) -> tuple[str, ...]:
    """`NVIDIA`, `AMD`, both or none. In a container what it was given counts, as far as is seen."""
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
