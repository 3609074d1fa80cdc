"""Lets a computation stop once its result is no longer needed.

The caller runs a long computation within `while_wanted`. The computation calls `check_wanted`
between its parts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_wanted: ContextVar[Callable[[], bool]] = ContextVar("is_wanted", default=lambda: True)


class Withdrawn(Exception):
    """The result of a computation is no longer needed."""


@contextmanager
def while_wanted(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Within the block, make `check_wanted` call `is_wanted`, on this thread."""
    outer = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(outer)


def check_wanted() -> None:
    """Raise `Withdrawn` if the result of this thread's computation is no longer needed."""
    if not _is_wanted.get()():
        raise Withdrawn
