"""Stops a step that computes nothing urgent when something urgent arrives.

The engine's thread says when a step may be stopped; any other thread says that it is wanted. A wish
that comes between two steps counts for the next one, unless its reason was seen before that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Interruption:
    """`stop` is called with `True` only while a step runs that may be stopped, and with `False`
    when that is over. It must not block."""

    def __init__(self, stop: Callable[[bool], None]) -> None:
        self._stop = stop
        self._lock = Lock()
        self._is_wanted = False
        self._is_allowed = False

    def want(self) -> None:
        """Something urgent has come. From any thread."""
        with self._lock:
            self._is_wanted = True
            if self._is_allowed:
                self._stop(True)

    def seen(self) -> None:
        """All that has come is about to be looked at: no step has to stop for it."""
        with self._lock:
            self._is_wanted = False

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """The step inside may be stopped."""
        with self._lock:
            self._is_allowed = True
            if self._is_wanted:
                self._stop(True)
        try:
            yield
        finally:
            with self._lock:
                self._is_allowed = False
                self._stop(False)
