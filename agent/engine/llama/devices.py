"""The GPUs that llama.cpp finds on this host: the program of a process of its own.

A GPU's driver takes memory and may hang, so this module is run (`python -m`) in a child process; it
writes one line of JSON. llama-cpp-python has no names for these functions of ggml, so they are
called as ggml's header (`ggml-backend.h`) declares them.
"""

import ctypes
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_KINDS = (1, 2)
"""`GGML_BACKEND_DEVICE_TYPE_GPU` and `_IGPU`; processors and accelerators of theirs are others."""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A GPU with its memory in bytes; `free` is what no process has at the moment."""

    name: str
    memory: int
    free: int


def found_devices(ggml: Any) -> Iterator[FoundDevice]:
    """The GPUs that `ggml`, the loaded library, has a backend for."""
    get = _declared(ggml.ggml_backend_dev_get, ctypes.c_void_p, ctypes.c_size_t)
    kind = _declared(ggml.ggml_backend_dev_type, ctypes.c_int, ctypes.c_void_p)
    describe = _declared(ggml.ggml_backend_dev_description, ctypes.c_char_p, ctypes.c_void_p)
    count = _declared(ggml.ggml_backend_dev_count, ctypes.c_size_t)
    size_p = ctypes.POINTER(ctypes.c_size_t)
    measure = _declared(ggml.ggml_backend_dev_memory, None, ctypes.c_void_p, size_p, size_p)
    for index in range(count()):
        device = get(index)
        if kind(device) in _KINDS:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            measure(device, ctypes.byref(free), ctypes.byref(total))
            name = (describe(device) or b"GPU").decode(errors="replace")
            yield FoundDevice(name, memory=total.value, free=free.value)


def _declared(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype = result
    function.argtypes = arguments
    return function


def main() -> None:
    """Write what is found."""
    from llama_cpp._ggml import libggml

    libggml.ggml_backend_load_all()
    print(json.dumps([asdict(each) for each in found_devices(libggml)]))  # noqa: T201


if __name__ == "__main__":
    main()
