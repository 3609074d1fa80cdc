"""Chooses between llama.cpp's fastest kernels on CPUs and its plain ones.

The fastest kernels (AMX tiles, repacked weights) keep weights in "extra buffers" with a layout of
their own. The AMX kernels crash in a build whose compiler removed the stores that configure AMX
tiles as dead code (ggml-org/llama.cpp#20824). gcc's `-fno-dse` keeps these stores, and
`-frecord-gcc-switches` records the flags in the library.
"""

import logging
from pathlib import Path
from typing import Literal

import llama_cpp.llama_cpp as llama_cpp

from ....shared.reports.model_info import Kernels
from .backends import cpu_library, libraries_folder, library

logger = logging.getLogger(__name__)

AMX = "AMX_INT8 = 1"
"""llama.cpp's description of a build with AMX kernels, on a processor with AMX."""

SWITCH = b"-fno-dse"


def choose(
    choice: Literal["auto"] | Kernels, *, system: str | None = None, folder: Path | None = None
) -> Kernels:
    """Return the kernels for which to load weights.

    `auto` means all kernels, unless they use AMX and the build is unsafe.

    `system` is llama.cpp's description of its build, and `folder` has its libraries; both have
    defaults.
    """
    if choice != "auto":
        return choice
    if system is None:
        library()
        system = llama_cpp.llama_print_system_info().decode(errors="replace")
    if AMX not in system or any(map(is_mended, _libraries(folder))):
        return "all"
    logger.warning(
        "llama.cpp's plain kernels are used, which are slower: gcc breaks the AMX kernels "
        "without -fno-dse, and llama.cpp's library does not tell whether it was built with this "
        'flag; build it with CMAKE_ARGS=\'-DCMAKE_C_FLAGS="-fno-dse -frecord-gcc-switches" '
        '-DCMAKE_CXX_FLAGS="-fno-dse -frecord-gcc-switches"\', or, if the AMX kernels work on this '
        "host, set --kernels all"
    )
    return "plain"


def is_mended(library: Path) -> bool:
    """Return whether the library's compiler kept the stores that configure AMX tiles."""
    return SWITCH in library.read_bytes()


def _libraries(folder: Path | None) -> list[Path]:
    """Return the libraries for processors; only the loaded library, if the system names it."""
    loaded = cpu_library() if folder is None else None
    if loaded is not None:
        return [loaded]
    return [path for path in (folder or libraries_folder()).glob("*ggml-cpu*") if path.is_file()]
