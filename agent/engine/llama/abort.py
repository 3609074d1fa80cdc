"""What llama.cpp says before it ends the process because one of its assertions failed."""

import ctypes
from collections.abc import Callable
from pathlib import PurePath

import llama_cpp.llama_cpp as llama_cpp

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_kept: list[object] = []
"""llama.cpp keeps only the pointer: the callback must live as long as the process does."""


def on_abort(say: Callable[[str], None]) -> None:
    """Have `say` called with one line, on the thread that fails, right before the process ends.

    llama.cpp prints no backtrace then: a debugger that it starts would keep clients waiting.
    """
    callback = _Callback(lambda message: say(_line(message)))
    _kept[:] = [callback]
    # llama-cpp-python has no name for this function of ggml's.
    llama_cpp._lib.ggml_set_abort_callback(callback)


def _line(message: bytes) -> str:
    """Without the folders of whoever built llama.cpp."""
    place, colon, what = message.decode("utf-8", "replace").partition(":")
    return " ".join((PurePath(place).name + colon + what).split())
