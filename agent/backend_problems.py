"""Problems of a host whose GPU is not used, or whose llama.cpp backend for a GPU does not work."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

NAMES = {"cuda": "CUDA", "hip": "ROCm", "sycl": "SYCL", "musa": "MUSA", "vulkan": "Vulkan"}
"""Backends for GPUs: the name of the library, and the prefixes of the names of its devices."""

_OF_MAKERS = {"NVIDIA": "cuda", "AMD": "hip"}
_EVERYWHERE = "vulkan"
"""This backend is part of portable builds, so finding no GPU with it is no problem."""

_BUILD = {"NVIDIA": "-DGGML_CUDA=on", "AMD": "-DGGML_HIP=on"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a GPU's backend.

    `is_unusable`: a backend for the GPU exists but cannot be used. Otherwise the GPU has no
    backend.
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
    """Return the problems of the host's GPUs with llama.cpp's backends.

    `makers` are the makers of the host's GPUs, and `built` are llama.cpp's backends. `reasons`
    says why some backends do not load. `devices` are the names of the devices that llama.cpp
    finds.
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
