"""Chooses between llama.cpp's fastest kernels on CPUs and its plain ones.

The fastest ones (AMX tiles, repacked weights) keep weights in "extra buffers" with a layout of
their own. Those for AMX crash in a build whose compiler took the stores that configure AMX tiles
for dead and left them out (ggml-org/llama.cpp#20824). gcc's `-fno-dse` keeps these stores, and
`-frecord-gcc-switches` lets the library say that it was built so.
"""

import logging
from pathlib import Path
from typing import Literal

import llama_cpp.llama_cpp as llama_cpp

from ....shared.reports.model_info import Kernels
from .backends import cpu_library, libraries_folder, library

logger = logging.getLogger(__name__)

AMX = "AMX_INT8 = 1"
"""What llama.cpp says of a build that has AMX kernels, for a processor with AMX."""

SWITCH = b"-fno-dse"


def choose(
    choice: Literal["auto"] | Kernels, *, system: str | None = None, folder: Path | None = None
) -> Kernels:
    """What to load weights for. `auto`: all, unless they are for AMX and the build is not mended.

    `system` is what llama.cpp says of its build, and `folder` has its libraries; both are found out
    unless given.
    """
    if choice != "auto":
        return choice
    if system is None:
        library()
        system = llama_cpp.llama_print_system_info().decode(errors="replace")
    if AMX not in system or any(map(is_mended, _libraries(folder))):
        return "all"
    logger.warning(
        "llama.cpp's plain kernels are used, which are slower: nothing in its library says that it "
        'was built for AMX with CMAKE_ARGS=\'-DCMAKE_C_FLAGS="-fno-dse -frecord-gcc-switches" '
        '-DCMAKE_CXX_FLAGS="-fno-dse -frecord-gcc-switches"\', and without -fno-dse gcc breaks the '
        "fast ones; if yours are sound, set --kernels all"
    )
    return "plain"


def is_mended(library: Path) -> bool:
    """Whether a library says that its compiler kept the stores that configure AMX tiles."""
    return SWITCH in library.read_bytes()


def _libraries(folder: Path | None) -> list[Path]:
    """Those that compute on processors: the one that is loaded, where the system says which."""
    loaded = cpu_library() if folder is None else None
    if loaded is not None:
        return [loaded]
    return [path for path in (folder or libraries_folder()).glob("*ggml-cpu*") if path.is_file()]
