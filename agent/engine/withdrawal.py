"""Whether somebody still waits for what a thread computes.

A caller wraps a long computation in `while_wanted`, which is told how to find out. The computation
calls `check_wanted` between its parts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_wanted: ContextVar[Callable[[], bool]] = ContextVar("is_wanted", default=lambda: True)


class Withdrawn(Exception):
    """No request waits for the result of a computation."""


@contextmanager
def while_wanted(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Have `check_wanted` ask `is_wanted`, on this thread and within this block."""
    outer = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(outer)


def check_wanted() -> None:
    """Raises `Withdrawn` if nobody waits for what this thread computes."""
    if not _is_wanted.get()():
        raise Withdrawn
