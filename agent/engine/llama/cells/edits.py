"""What a step's edits come to, whichever layout the cells have."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ...prompt_store.stored_prompt import State
from ...step import Copy, Edit, Move


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of a step's edits: see `NotLoaded` and `Decoded`."""

    not_loaded: tuple[int, ...]
    saved: tuple[State, ...]
    move_seconds: float


class Edits(Protocol):
    """Edits the cells of a context."""

    def number(self, slot: int) -> int:
        """llama.cpp's `seq_id` of `slot`."""

    def carry_out(self, edits: Iterable[Edit]) -> Edited:
        """All of `edits`, in their order."""


def carry_out(
    edits: Iterable[Edit],
    *,
    edit: Callable[[Edit], None],
    move: Callable[[Move], Iterable[int]],
) -> tuple[tuple[int, ...], float]:
    """Call `edit` or `move` for each of `edits`; see `Edited` for the answer.

    `move` says which holders' cells could not be had.
    """
    seconds = 0.0
    not_loaded: list[int] = []
    for one in edits:
        started = time.perf_counter()
        if isinstance(one, Move):
            not_loaded += move(one)
        else:
            edit(one)
            if not isinstance(one, Copy) or not one.count:
                continue
        seconds += time.perf_counter() - started
    return tuple(not_loaded), seconds
