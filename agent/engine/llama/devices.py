"""The devices that llama.cpp finds on this host, and where tensors can be put on them.

llama-cpp-python has no names for these functions of ggml, so they are called as ggml's header
(`ggml-backend.h`) declares them. A GPU's driver takes memory and may hang: whoever only wants
to know runs `agent/probe.py`.
"""

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .backends import library

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
"""`GGML_BACKEND_DEVICE_TYPE_…`; an accelerator helps the CPU and has its memory."""

GPUS = ("gpu", "igpu")


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device with its memory in bytes; `free` is what no process has at the moment.

    `name` is what settings call it, and `description` the product. `place` on the bus, such as
    `0000:c1:00.0`, where that is known.
    """

    name: str
    description: str
    kind: str
    memory: int
    free: int
    place: str | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether layers can be offloaded to it."""
        return self.kind in GPUS

    @property
    def is_remote(self) -> bool:
        """Whether an RPC server has it; `description` is its address then."""
        return self.name.startswith("RPC")


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`; with more room at its end than today's `caps` take."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_bool * 64),
    )


_PLACE = re.compile(r"[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.[0-7]")


class Devices:
    """The devices of `ggml`, the loaded library."""

    def __init__(self, ggml: Any) -> None:
        pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        sizes = ctypes.POINTER(size)
        self._count = _declared(ggml.ggml_backend_dev_count, size)
        self._get = _declared(ggml.ggml_backend_dev_get, pointer, size)
        self._kind = _declared(ggml.ggml_backend_dev_type, ctypes.c_int, pointer)
        self._name = _declared(ggml.ggml_backend_dev_name, text, pointer)
        self._describe = _declared(ggml.ggml_backend_dev_description, text, pointer)
        self._measure = _declared(ggml.ggml_backend_dev_memory, None, pointer, sizes, sizes)
        self._tell = _declared(
            ggml.ggml_backend_dev_get_props, None, pointer, ctypes.POINTER(_Properties)
        )
        self._buffer_type = _declared(ggml.ggml_backend_dev_buffer_type, pointer, pointer)
        self._buffer_name = _declared(ggml.ggml_backend_buft_name, text, pointer)

    def all(self) -> Iterator[tuple[int, FoundDevice]]:
        """Each device, after ggml's handle of it."""
        for index in range(self._count()):
            handle = self._get(index)
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self._measure(handle, ctypes.byref(free), ctypes.byref(total))
            yield (
                handle,
                FoundDevice(
                    _decoded(self._name(handle)),
                    _decoded(self._describe(handle)),
                    _KINDS.get(self._kind(handle), "other"),
                    memory=total.value,
                    free=free.value,
                    place=self._place(handle),
                ),
            )

    def _place(self, handle: Any) -> str | None:
        """A backend that knows no place says nothing, or something else that is its own."""
        told = _Properties()
        self._tell(handle, ctypes.byref(told))
        place = (told.device_id or b"").decode(errors="replace").lower()
        return place if _PLACE.fullmatch(place) else None

    def gpus(self) -> list[tuple[int, FoundDevice]]:
        """Those that layers can be offloaded to."""
        return [each for each in self.all() if each[1].is_gpu]

    def buffer_types(self) -> dict[str, int]:
        """ggml's handle of each device's own memory, by the device's name and by its own."""
        types = {device.name: self._buffer_type(handle) for handle, device in self.all()}
        found = {name: each for name, each in types.items() if each}
        own = {_decoded(self._buffer_name(each)): each for each in found.values()}
        return found | {name: each for name, each in own.items() if name not in found}


def loaded_devices() -> Devices:
    """Those of the library that this process has loaded."""
    return Devices(library())


def _decoded(text: bytes | None) -> str:
    return (text or b"?").decode(errors="replace")


def _declared(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype = result
    function.argtypes = arguments
    return function
