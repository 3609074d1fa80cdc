"""Reports llama.cpp's message when a failed assertion is about to abort the process."""

import ctypes
from collections.abc import Callable
from pathlib import PurePath

import llama_cpp.llama_cpp as llama_cpp

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_kept: list[object] = []
"""llama.cpp keeps only the pointer: the callback must live as long as the process does."""


def on_abort(say: Callable[[str], None]) -> None:
    """Call `say` with one line, on the thread that fails, right before the process ends.

    llama.cpp prints no backtrace then: the debugger that it starts would keep clients waiting.
    """
    callback = _Callback(lambda message: say(_line(message)))
    _kept[:] = [callback]
    # llama-cpp-python has no name for this function of ggml's.
    llama_cpp._lib.ggml_set_abort_callback(callback)


def _line(message: bytes) -> str:
    """The message without the build machine's folders."""
    place, colon, what = message.decode("utf-8", "replace").partition(":")
    return " ".join((PurePath(place).name + colon + what).split())
