"""Which GPUs ggml tells of; here a stand-in for its library, since there is none."""

import ctypes
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from arriero.agent.engine.llama.devices import FoundDevice, found_devices
from tests.waiting import HANGS

CPU, GPU, INTEGRATED = 0, 1, 2
DEVICES = [(CPU, b"processor", 1, 2), (GPU, b"NVIDIA H100", 70, 80), (INTEGRATED, b"iGPU", 3, 4)]


def measure(device: int, free: Any, total: Any) -> None:
    free._obj.value, total._obj.value = DEVICES[device][2:]


def declared(function: Any) -> Any:
    """A function that has `restype` and `argtypes`, like those of a library."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


GGML = SimpleNamespace(
    ggml_backend_dev_count=declared(lambda: len(DEVICES)),
    ggml_backend_dev_get=declared(lambda index: index),
    ggml_backend_dev_type=declared(lambda device: DEVICES[device][0]),
    ggml_backend_dev_description=declared(lambda device: DEVICES[device][1]),
    ggml_backend_dev_memory=declared(measure),
)


def test_gpus_and_no_processors() -> None:
    assert list(found_devices(GGML)) == [
        FoundDevice("NVIDIA H100", memory=80, free=70),
        FoundDevice("iGPU", memory=4, free=3),
    ]


def test_the_functions_are_declared_as_in_the_header() -> None:
    """A pointer that is taken for a 32-bit number would crash the process."""
    list(found_devices(GGML))
    assert GGML.ggml_backend_dev_get.restype is ctypes.c_void_p
    assert GGML.ggml_backend_dev_type.argtypes == (ctypes.c_void_p,)


def test_the_real_library_answers() -> None:
    program = [sys.executable, "-m", "arriero.agent.engine.llama.devices"]
    found = subprocess.run(program, capture_output=True, check=True, timeout=HANGS)
    assert isinstance(json.loads(found.stdout.splitlines()[-1]), list)
