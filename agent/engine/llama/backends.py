"""llama.cpp's backends: one for processors, and one for each kind of GPU.

A build for one host has all backends linked in. A portable build has them as separate libraries.
The best library for processors that runs here is loaded, and every other library that loads.
"""

import ctypes
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ..model_error import ModelError

_LIBRARY = re.compile(r"(?:lib)?ggml-([a-z]+)(?:-(\w+))?\.(?:so|dylib|dll)")
_loading = threading.Lock()


def library() -> Any:
    """Return llama.cpp's library with its backends loaded. Raises `ModelError` if none runs here.

    This is the library that llama.cpp itself calls. `llama_cpp._ggml.libggml` opens the file by
    another name. In wheels that file is a copy, which has no backends and no devices.
    """
    ggml = llama_cpp._lib
    with _loading:
        # Without a folder, ggml would take what lies in the working directory.
        if not _num_backends(ggml):
            ggml.ggml_backend_load_all_from_path(os.fsencode(libraries_folder()))
        if not _num_backends(ggml):
            raise ModelError(
                f"no library of llama.cpp in {libraries_folder()} runs on this processor"
            )
    return ggml


def libraries_folder() -> Path:
    """Return the folder that `LLAMA_CPP_LIB_PATH` names, or else llama-cpp-python's own."""
    named = os.environ.get("LLAMA_CPP_LIB_PATH")
    return Path(named) if named else Path(llama_cpp.__file__).parent / "lib"


def cpu_library() -> Path | None:
    """Return the library that computes on the processor; `None` if the system does not say."""
    ggml = library()
    find = ggml.ggml_backend_reg_by_name
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    return _file_of(find(b"CPU"))


def cpu_variant(path: Path | None) -> str | None:
    """Return the variant of the library at `path`, such as `haswell`; `None` for a library without
    variants."""
    found = _LIBRARY.fullmatch(path.name) if path is not None else None
    return found[2] if found else None


def built(folder: Path | None = None) -> tuple[str, ...]:
    """Return the available backends by the names of their libraries: `cpu`, `cuda`, `rpc`."""
    found = (name for name, _ in _libraries(folder or libraries_folder()))
    return tuple(dict.fromkeys(found))


def unloadable(names: Sequence[str], folder: Path | None = None) -> dict[str, str]:
    """Return the backends among `names` that exist but cannot be loaded, with reasons."""
    reasons = {}
    for name, path in _libraries(folder or libraries_folder()):
        if name in names:
            try:
                ctypes.CDLL(str(path))
            except OSError as error:
                reasons[name] = str(error)
    return reasons


def _libraries(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("*ggml-*")):
        if found := _LIBRARY.fullmatch(path.name):
            yield found[1], path


def _num_backends(ggml: Any) -> int:
    count = ggml.ggml_backend_reg_count
    count.restype = ctypes.c_size_t
    return int(count())


class _Origin(ctypes.Structure):
    """`Dl_info`: the origin of an address in memory."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _file_of(address: int | None) -> Path | None:
    look_up = getattr(ctypes.CDLL(None), "dladdr", None) if os.name == "posix" else None
    origin = _Origin()
    if address is None or look_up is None:
        return None
    if not look_up(ctypes.c_void_p(address), ctypes.byref(origin)) or not origin.file:
        return None
    return Path(os.fsdecode(origin.file))
