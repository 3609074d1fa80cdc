"""The devices that llama.cpp finds on this host, and their buffer types for tensors.

llama-cpp-python does not declare these functions of ggml, so they are declared here as in its
header (`ggml-backend.h`). A GPU's driver takes memory and may hang: callers that only need
information run `agent/probe.py`.
"""

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .backends import library

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
"""`GGML_BACKEND_DEVICE_TYPE_…`; an accelerator helps the CPU and uses its memory."""

GPUS = ("gpu", "igpu")


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device with its memory in bytes; `free` is unused by any process at the moment.

    `name` is its name in settings, `description` the product. `place` is its address on the bus,
    such as `0000:c1:00.0`, if known.
    """

    name: str
    description: str
    kind: str
    memory: int
    free: int
    place: str | None = None

    @property
    def is_gpu(self) -> bool:
        """Return whether layers can be offloaded to the device."""
        return self.kind in GPUS

    @property
    def is_remote(self) -> bool:
        """Return whether the device belongs to an RPC server. `description` is then the server's
        address.
        """
        return self.name.startswith("RPC")


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`, with spare room at its end in case `caps` grows."""

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
        """Yield each device, with ggml's handle first."""
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
        """Return the device's bus address; `None` if the backend gives no bus address."""
        told = _Properties()
        self._tell(handle, ctypes.byref(told))
        place = (told.device_id or b"").decode(errors="replace").lower()
        return place if _PLACE.fullmatch(place) else None

    def gpus(self) -> list[tuple[int, FoundDevice]]:
        """Return the devices that layers can be offloaded to."""
        return [each for each in self.all() if each[1].is_gpu]

    def buffer_types(self) -> dict[str, int]:
        """Return ggml's handles of each device's own memory, by the names of device and memory."""
        types = {device.name: self._buffer_type(handle) for handle, device in self.all()}
        found = {name: each for name, each in types.items() if each}
        own = {_decoded(self._buffer_name(each)): each for each in found.values()}
        return found | {name: each for name, each in own.items() if name not in found}


def loaded_devices() -> Devices:
    """Return the devices of the llama.cpp library that this process has loaded."""
    return Devices(library())


def _decoded(text: bytes | None) -> str:
    return (text or b"?").decode(errors="replace")


def _declared(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype = result
    function.argtypes = arguments
    return function
