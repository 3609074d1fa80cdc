"""Problems of a host whose GPU, or whose llama.cpp backend for one, is not used."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

NAMES = {"cuda": "CUDA", "hip": "ROCm", "sycl": "SYCL", "musa": "MUSA", "vulkan": "Vulkan"}
"""Backends for GPUs by the names of their libraries, with the prefixes of their devices' names."""

_OF_MAKERS = {"NVIDIA": "cuda", "AMD": "hip"}
_EVERYWHERE = "vulkan"
"""Part of portable builds, so it is no problem if this backend finds no GPU."""

_BUILD = {"NVIDIA": "-DGGML_CUDA=on", "AMD": "-DGGML_HIP=on"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a GPU's backend.

    `is_unusable`: a backend exists and cannot be used; otherwise the GPU has no backend.
    """

    is_unusable: bool
    message: str
    hint: str


def problems(
    makers: Collection[str],
    built: Collection[str],
    reasons: Mapping[str, str],
    devices: Collection[str],
) -> list[Problem]:
    """Return the problems, from the makers of the host's GPUs and llama.cpp's backends.

    `built` are llama.cpp's backends; `reasons` says why some of them do not load; `devices` are the
    names of the devices that it finds.
    """
    found = []
    for name in built:
        makers_own = [maker for maker in makers if _OF_MAKERS.get(maker) == name]
        is_expected = name != _EVERYWHERE or (makers and not _sees(devices, *built))
        if name in NAMES and is_expected and not _sees(devices, name):
            found.append(_unusable(name, makers_own, reasons.get(name)))
    for maker in makers:
        if _OF_MAKERS[maker] not in built and _EVERYWHERE not in built:
            found.append(_missing(maker))
    return found


def _sees(devices: Collection[str], *backends: str) -> bool:
    return any(
        each.startswith(NAMES[name]) for name in backends if name in NAMES for each in devices
    )


def _unusable(name: str, makers: Collection[str], reason: str | None) -> Problem:
    beside = f", although this host has a GPU of {' and '.join(makers)}" if makers else ""
    why = f"does not load: {reason}" if reason else "finds no device"
    return Problem(
        is_unusable=True,
        message=f"models are computed on the CPU: llama.cpp's backend for {NAMES[name]} {why}"
        f"{beside}",
        hint="check the driver, and in a container its devices; to compute on "
        "the CPU, set --device none",
    )


def _missing(maker: str) -> Problem:
    return Problem(
        is_unusable=False,
        message=f"models are computed on the CPU: this host has a GPU of {maker}, but llama.cpp "
        "was built without a backend for this GPU",
        hint=f"build llama.cpp for it (CMAKE_ARGS={_BUILD[maker]}); to compute on the CPU, set "
        "--device none",
    )
