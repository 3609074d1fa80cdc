"""The parts of llama.cpp that compute: one for processors, and one for each kind of GPU.

A build for one host has them linked in. A portable one has them as libraries beside its own: of
those for processors the best that this one can run is loaded, and of the others what loads at all.
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
    """llama.cpp's library, with its backends. Raises `ModelError` where none runs here.

    It is the one that llama.cpp itself calls: `llama_cpp._ggml.libggml` is opened by another name
    of the file, and where that is a copy, as in wheels, it knows no backend and no device.
    """
    ggml = llama_cpp._lib
    with _loading:
        # Without a folder, ggml would take what lies in the working directory.
        if not _num_backends(ggml):
            ggml.ggml_backend_load_all_from_path(os.fsencode(libraries_folder()))
        if not _num_backends(ggml):
            raise ModelError(
                f"no library of llama.cpp's in {libraries_folder()} computes on this processor"
            )
    return ggml


def libraries_folder() -> Path:
    """Where llama-cpp-python has its libraries, unless `LLAMA_CPP_LIB_PATH` names others."""
    named = os.environ.get("LLAMA_CPP_LIB_PATH")
    return Path(named) if named else Path(llama_cpp.__file__).parent / "lib"


def cpu_library() -> Path | None:
    """The library that computes on the processor; `None` where the system does not say."""
    ggml = library()
    find = ggml.ggml_backend_reg_by_name
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    return _file_of(find(b"CPU"))


def cpu_variant(path: Path | None) -> str | None:
    """For which processors the library at `path` is: `haswell`; `None` where it has no variants."""
    found = _LIBRARY.fullmatch(path.name) if path is not None else None
    return found[2] if found else None


def built(folder: Path | None = None) -> tuple[str, ...]:
    """The backends that are there, by the names of their libraries: `cpu`, `cuda`, `rpc`."""
    found = (name for name, _ in _libraries(folder or libraries_folder()))
    return tuple(dict.fromkeys(found))


def unloadable(names: Sequence[str], folder: Path | None = None) -> dict[str, str]:
    """The backends among `names`, such as `cuda`, that are there and do not load, with reasons."""
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
    """`Dl_info`: where an address in memory comes from."""

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
