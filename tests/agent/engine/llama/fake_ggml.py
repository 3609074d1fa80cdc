"""A stand-in for ggml's library with a processor and three GPUs, which no host of tests has."""

from types import SimpleNamespace
from typing import Any

_CPU, _GPU, _INTEGRATED = 0, 1, 2
_GIB = 2**30
_DEVICES = [
    (_CPU, b"CPU", b"processor", 1, 2),
    (_GPU, b"CUDA0", b"NVIDIA H100", 70, 80),
    (_INTEGRATED, b"Vulkan0", b"iGPU", 3, 4),
    (_GPU, b"CUDA1", b"NVIDIA L4", 20, 24),
]
_PLACES = [None, b"0000:C1:00.0", b"iGPU", b"0000:c2:00.0"]
_BUFFERS = [b"CPU", b"CUDA0", b"Vulkan0_Memory", b"CUDA1"]
_FIRST_BUFFER_TYPE = 101


def _measure(handle: int, free: Any, total: Any) -> None:
    _, _, _, *sizes = _DEVICES[handle - 1]
    free._obj.value, total._obj.value = (_GIB * size for size in sizes)


def _tell(handle: int, told: Any) -> None:
    told._obj.device_id = _PLACES[handle - 1]


def _declared(function: Any) -> Any:
    """A function that has `restype` and `argtypes`, like those of a library."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


GGML = SimpleNamespace(
    ggml_backend_dev_count=_declared(lambda: len(_DEVICES)),
    ggml_backend_dev_get=_declared(lambda index: index + 1),
    ggml_backend_dev_type=_declared(lambda handle: _DEVICES[handle - 1][0]),
    ggml_backend_dev_name=_declared(lambda handle: _DEVICES[handle - 1][1]),
    ggml_backend_dev_description=_declared(lambda handle: _DEVICES[handle - 1][2]),
    ggml_backend_dev_memory=_declared(_measure),
    ggml_backend_dev_get_props=_declared(_tell),
    ggml_backend_dev_buffer_type=_declared(lambda handle: _FIRST_BUFFER_TYPE - 1 + handle),
    ggml_backend_buft_name=_declared(lambda type: _BUFFERS[type - _FIRST_BUFFER_TYPE]),
)
"""Its handles are numbers from 1 on, those of buffer types from 101 on."""
