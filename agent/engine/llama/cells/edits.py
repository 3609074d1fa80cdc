"""Carries out a step's edits on llama.cpp's cells, for both layouts.

It also holds the blocks in host memory: copied from cells, or put there from storage.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from ...prompt_store.stored_prompt import State
from ...step import (
    Clear,
    Copy,
    Discard,
    Edit,
    Free,
    Move,
    Offload,
    OffloadState,
    Place,
    Put,
    ReadOut,
    Restore,
    RestoreState,
)
from .state_format import cut, parse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of a step's edits: see `NotLoaded` and `Decoded`."""

    not_loaded: tuple[int, ...]
    saved: tuple[State, ...]
    move_seconds: float


class Cells(Protocol):
    """The cells of a context. Methods that can fail return whether they worked."""

    def number(self, slot: int) -> int:
        """Return llama.cpp's `seq_id` of `slot`."""

    def clear(self, holder: int, start: int) -> bool:
        """Free the cells of `holder` from `start` on."""

    def copy(self, edit: Copy) -> bool:
        """Give a holder the first cells of another holder."""

    def place(self, holder: int, stream: int) -> None:
        """Assign `stream` with its content to `holder`."""

    def discard(self, slot: int, start: int, count: int) -> None:
        """Remove `count` cells, and move later cells up."""

    def read(self, holder: int, start: int, count: int) -> State:
        """Read the state of `count` cells; empty if they cannot be read."""

    def write(self, holder: int, start: int, pieces: Sequence[tuple[int, State]]) -> bool:
        """Append `pieces` (each a count and a state) after the first `start` cells of `holder`."""

    def read_state(self, holder: int, length: int) -> State:
        """Read the uncuttable state of `holder` at position `length`."""

    def write_state(self, holder: int, length: int, state: State) -> bool:
        """Write the uncuttable state of `holder` at position `length`."""

    def end(self) -> None:
        """Note that all edits of a step are done."""


class Edits:
    """Carries out edits on `cells`, and holds the blocks in host memory."""

    def __init__(self, cells: Cells) -> None:
        self.number = cells.number
        self._cells = cells
        self._blocks: dict[int, State] = {}

    def carry_out(self, edits: Iterable[Edit]) -> Edited:
        """Carry out all of `edits` in order."""
        failed: list[int] = []
        saved: list[State] = []
        seconds = 0.0
        for group in _grouped(edits):
            started = time.perf_counter()
            first = group[0]
            if isinstance(first, ReadOut):
                saved.append(self._handed_out(first))
            elif (holder := self._carry_out(first, group)) is not None:
                failed.append(holder)
            if isinstance(first, Move) or (isinstance(first, Copy) and first.count):
                seconds += time.perf_counter() - started
        self._cells.end()
        return Edited(tuple(failed), tuple(saved), seconds)

    def _carry_out(self, edit: Edit, group: Sequence[Edit]) -> int | None:
        """Carry out one edit or one group. Returns the holder if the edit failed, or `None`."""
        cells, is_done = self._cells, True
        holder = edit.holder if isinstance(edit, Clear | Copy | Restore | RestoreState) else None
        match edit:
            case Clear(_, start):
                is_done = cells.clear(edit.holder, start)
            case Copy():
                is_done = cells.copy(edit)
            case Place(owner, stream):
                cells.place(owner, stream)
            case Discard(slot, start, count):
                cells.discard(slot, start, count)
            case Offload(source, start, count, block):
                self._blocks[block] = _read(partial(cells.read, source, start, count))
            case OffloadState(source, length, block):
                self._blocks[block] = _read(partial(cells.read_state, source, length))
            case Restore(_, start):
                restores = (one for one in group if isinstance(one, Restore))
                pieces = [(one.count, self._blocks[one.block]) for one in restores]
                is_done = cells.write(edit.holder, start, pieces)
            case RestoreState(_, length, block):
                is_done = cells.write_state(edit.holder, length, self._blocks[block])
            case Put(block, state):
                self._blocks[block] = state
            case Free(blocks):
                for block in blocks:
                    del self._blocks[block]
            case ReadOut():
                raise TypeError("a ReadOut is answered by `carry_out`")
            case _:
                assert_never(edit)
        return None if is_done else holder

    def _handed_out(self, edit: ReadOut) -> State:
        state, count = self._blocks[edit.block], edit.count
        if count is None or not state:
            return state
        return _read(lambda: cut(parse(state), edit.start, count))


def _read(read: Callable[[], State]) -> State:
    """Return the state that `read` returns; an empty one if it fails."""
    try:
        return read()
    except Exception:  # the boundary of a prefix: it is lost, and nobody else notices
        logger.exception("the state of a prefix could not be read")
        return b""


def _grouped(edits: Iterable[Edit]) -> Iterable[list[Edit]]:
    """Yield groups: consecutive blocks restored to one holder form a group; other edits stand
    alone.
    """
    group: list[Edit] = []
    for edit in edits:
        last = group[-1] if group else None
        if isinstance(edit, Restore) and isinstance(last, Restore) and edit.holder == last.holder:
            group.append(edit)
            continue
        if group:
            yield group
        group = [edit]
    if group:
        yield group
