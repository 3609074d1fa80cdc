"""The GPUs of this host that llama.cpp finds, and issues about GPUs that it cannot use."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..shared.log import context
from ..shared.messages import Issue
from ..shared.models.assignments import HOST, MAX_DEVICES, Device
from ..shared.reports.statistics import DeviceMemory
from .child import Child, program
from .host_facts import available_memory, total_memory
from .host_gpus import gpu_makers

logger = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds within which drivers have to answer."""

LONGEST_NAME = 200
MAX_LINE = 2**20
_PROGRAM = program("arriero.agent.probe")
_OTHERS = ("base", "cpu", "blas", "rpc")
"""Backends that are not for GPUs."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that llama.cpp finds, and issues of backends that cannot be used."""

    devices: tuple[Device, ...] = ()
    issues: tuple[Issue, ...] = ()


async def gpus(
    libraries: Path | None = None,
    program: Sequence[str] = _PROGRAM,
    deadline: float = DEADLINE,
    *,
    servers: Sequence[str] = (),
    are_wanted: bool = True,
    makers: Callable[[], Collection[str]] = gpu_makers,
) -> Gpus:
    """Ask llama.cpp for the GPUs, in a separate process.

    Never fails: if no GPU is found, the log says why.

    `libraries` is the folder of llama.cpp's libraries. `servers` are the servers of `--rpc`.
    `are_wanted`: the settings do not restrict computing to the CPU, so an unused GPU is a problem.
    `makers` returns the makers of the GPUs that the system knows.
    """
    folder = _libraries() if libraries is None else libraries
    if folder is None or not (has_gpu_backend(folder) or servers or makers()):
        return Gpus()
    try:
        found = await _looked(program, servers, deadline)
        return Gpus(_devices(found["devices"]), _issues(found["problems"]) if are_wanted else ())
    except (TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        reason = str(error) or f"no answer within {deadline:g} s"
        logger.warning("llama.cpp could not be asked for GPUs", extra=context(reason=reason))
        return Gpus()


async def idle_memory(
    devices: Sequence[Device],
    program: Sequence[str] = _PROGRAM,
    deadline: float = DEADLINE,
    *,
    servers: Sequence[str] = (),
) -> tuple[DeviceMemory, ...]:
    """Return the free memory of this host, which has no engine, and of its `devices`.

    Never fails: if a GPU's memory is unknown, the log says why.
    """
    total = total_memory() or 0
    free = available_memory()
    host = DeviceMemory(name=HOST, kind="cpu", total=total, free=min(total, free or total))
    if not devices:
        return (host,)
    names = {each.name for each in devices}
    try:
        found = await _looked(program, servers, deadline)
        return (host, *(_memory(each) for each in found["devices"] if each["name"] in names))
    except (TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        reason = str(error) or f"no answer within {deadline:g} s"
        logger.warning("the memory of GPUs could not be measured", extra=context(reason=reason))
        return (host,)


def _memory(device: dict[str, Any]) -> DeviceMemory:
    """Read a device. Raises `LookupError`, `ValueError` or `TypeError` for invalid data."""
    total = int(device["memory"])
    return DeviceMemory(
        name=str(device["name"]),
        kind="igpu" if device["kind"] == "igpu" else "gpu",
        total=total,
        free=min(total, int(device["free"])),
    )


async def _looked(program: Sequence[str], servers: Sequence[str], deadline: float) -> Any:
    """Return the output of `probe`. Raises `TimeoutError`, `OSError` or `ValueError`."""
    async with asyncio.timeout(deadline):
        return json.loads(await _output([*program, *servers]))


def has_gpu_backend(libraries: Path) -> bool:
    """Return whether llama.cpp was built for GPUs, with a library for each kind of GPU."""
    names = (path.name.partition(".")[0] for path in libraries.glob("*ggml-*"))
    return any(name.rpartition("ggml-")[2].partition("-")[0] not in _OTHERS for name in names)


def _devices(devices: list[dict[str, Any]]) -> tuple[Device, ...]:
    """Read the devices. Raises `LookupError`, `ValueError` or `TypeError` for invalid data."""
    for each in devices:
        logger.info(
            "a GPU was found",
            extra=context(
                name=each["name"],
                description=each["description"],
                memory=each["memory"],
                free=each["free"],
            ),
        )
    return tuple(
        Device(
            name=str(each["name"])[:LONGEST_NAME],
            description=str(each["description"])[:LONGEST_NAME],
            memory=int(each["memory"]),
        )
        for each in devices[:MAX_DEVICES]
    )


def _issues(problems: list[dict[str, Any]]) -> tuple[Issue, ...]:
    """Return the issues of existing backends; missing backends are only logged."""
    for each in problems:
        logger.warning("%s", each["message"], extra=context(hint=each["hint"]))
    return tuple(
        Issue(code="backend_unusable", message=each["message"], hint=each["hint"])
        for each in problems
        if each["is_unusable"]
    )


def _libraries() -> Path | None:
    """Return the same as `backends.libraries_folder`, without importing llama.cpp."""
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):
        return Path(named)
    spec = find_spec("llama_cpp")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "lib"


async def _output(command: Sequence[str]) -> bytes:
    """Return the last line that `command` writes. Raises `OSError` and `ValueError`."""
    async with await Child.start(command, longest_line=MAX_LINE) as child:
        last = b""
        async for line in child.lines():
            last = line
        if code := await child.end():
            raise ValueError(f"it ended with code {code}")
    return last
