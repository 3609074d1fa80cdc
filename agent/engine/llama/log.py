"""Routes llama.cpp's log to Python's, and reports the message before an abort.

llama.cpp logs much that operators do not need, so its level INFO becomes DEBUG here. While a model
is loaded, its warnings and errors become DEBUG too, because the one error for the user
(`ModelError`) contains them.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

import llama_cpp.llama_cpp as llama_cpp

logger = logging.getLogger(__name__)

MAX_HELD = 20
"""Maximum errors held back. The first errors give the cause; later errors follow from them."""

_LEVELS = {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
"""ggml.h's levels (info, warning, error). Its debug level and unknown levels are not passed on."""

_CONTINUED = 5
"""ggml's level for a text that continues the previous line."""


class LineLog:
    """Joins texts into lines and logs them, or holds them back on request."""

    def __init__(self) -> None:
        # llama.cpp keeps only the pointer: the callback must live as long as the process does.
        self.callback = llama_cpp.llama_log_callback(
            lambda level, text, _: self.receive(level, text)
        )
        self._level: int | None = None
        self._text = ""
        self._held: list[str] | None = None
        self._held_warnings: list[str] = []
        self.is_calm = False
        """If true, warnings and errors are logged as DEBUG, because the event that they report is
        intended.
        """

    def receive(self, level: int, text: bytes) -> None:
        """Take a text from llama.cpp: a line, a part of a line, or several lines."""
        if level != _CONTINUED:
            self._level = _LEVELS.get(level)
            self._text = ""
        *lines, self._text = (self._text + text.decode("utf-8", "replace")).split("\n")
        for line in lines:
            if line.strip() and self._level is not None:
                self._write(self._level, line.strip())

    @contextmanager
    def hold_errors(self, warnings: list[str] | None = None) -> Iterator[list[str]]:
        """Inside the block, log warnings and errors as DEBUG; the yielded list collects errors.

        The first warnings are added to `warnings`, if given.
        """
        held: list[str] = []
        self._held = held
        self._held_warnings = [] if warnings is None else warnings
        try:
            yield held
        finally:
            self._held = None

    def _write(self, level: int, line: str) -> None:
        if self._held is not None:
            kept = {logging.ERROR: self._held, logging.WARNING: self._held_warnings}.get(level)
            if kept is not None and len(kept) < MAX_HELD:
                kept.append(line)
            level = logging.DEBUG
        if self.is_calm:
            level = logging.DEBUG
        logger.log(level, "%s", line)


_log = LineLog()


def route_log() -> LineLog:
    """Send llama.cpp's log to Python's from now on. May be called again."""
    llama_cpp.llama_log_set(_log.callback, None)
    return _log


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_callbacks: list[object] = []
"""Keeps the callback alive as long as the process, since llama.cpp keeps only a pointer to it."""


def on_abort(say: Callable[[str], None]) -> None:
    """Call `say` with llama.cpp's message when a failed assertion is about to abort the process.

    The message is one line. The call happens on the failing thread. llama.cpp then prints no
    backtrace: its debugger would keep clients waiting.
    """
    callback = _Callback(lambda message: say(_line(message)))
    _callbacks[:] = [callback]
    # llama-cpp-python has no name for this function of ggml's.
    llama_cpp._lib.ggml_set_abort_callback(callback)


def _line(message: bytes) -> str:
    """Return the message without the build machine's folders."""
    place, colon, what = message.decode("utf-8", "replace").partition(":")
    return " ".join((PurePath(place).name + colon + what).split())
