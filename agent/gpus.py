"""The GPUs of this host, as llama.cpp finds them; none where its build has no backend for any."""

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ..shared.log import context
from ..shared.models.assignments import MAX_DEVICES, Device

logger = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds that drivers have to answer."""

LONGEST_NAME = 200
_PROGRAM = (sys.executable, "-m", "arriero.agent.engine.llama.devices")
_OTHERS = ("base", "cpu", "blas", "rpc")
"""Backends that are not GPUs."""


async def gpus(
    libraries: Path | None = None,
    program: Sequence[str] = _PROGRAM,
    deadline: float = DEADLINE,
    *,
    servers: Sequence[str] = (),
) -> tuple[Device, ...]:
    """Asked of llama.cpp in a process of its own. Never fails: the log says why it found none.

    `libraries` is the folder that llama.cpp's are in. `servers`: those of `--rpc`.
    """
    folder = _libraries() if libraries is None else libraries
    if folder is None or not (has_gpu_backend(folder) or servers):
        return ()
    try:
        async with asyncio.timeout(deadline):
            return read(await _output([*program, *servers]))
    except (TimeoutError, OSError, ValueError, LookupError) as error:
        reason = str(error) or f"no answer within {deadline:g} s"
        logger.warning("llama.cpp cannot say which GPUs there are", extra=context(reason=reason))
        return ()


def has_gpu_backend(libraries: Path) -> bool:
    """Whether llama.cpp was built for GPUs: then there is a library for each kind."""
    names = (path.name.partition(".")[0] for path in libraries.glob("*ggml-*"))
    return any(name.rpartition("ggml-")[2].partition("-")[0] not in _OTHERS for name in names)


def read(output: bytes) -> tuple[Device, ...]:
    """What the process wrote. Raises `ValueError` or `LookupError` where it is something else."""
    devices = json.loads(output)
    for each in devices:
        logger.info(
            "a GPU",
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


def _libraries() -> Path | None:
    spec = find_spec("llama_cpp")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "lib"


async def _output(program: Sequence[str]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(f"it ended with code {process.returncode}")
    return output.splitlines()[-1]
