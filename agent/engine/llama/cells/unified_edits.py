"""A step's edits, carried out on one cache for all.

Kept prefixes have `seq_id`s above the slots': with a unified cache llama.cpp's memory takes any id
below its own limit, while every id that batches may use (`n_seq_max`) costs a row of logits and
work in each decode. One spare id lies between the two. llama.cpp saves and loads states only of ids
that batches may use, and only all cells of an id at once. So a piece of a sequence gets the spare
id while it is read or written.

What sequences have that cannot be cut, llama.cpp reads and writes apart (`PARTIAL_ONLY`): what
layers with a sliding window have, and recurrent states. A block of a checkpoint has none of that,
for the spare id gets a *blank* in its place: an empty recurrent state, or the window of a token
behind all positions, since an empty one is not taken for one.
"""

import logging
from collections.abc import Iterable
from typing import assert_never

import llama_cpp.llama_cpp as llama_cpp

from ...prompt_store.stored_prompt import State
from ...sequence import SequenceId
from ...step import (
    Adopt,
    AdoptBlock,
    AdoptState,
    Clear,
    Copy,
    Discard,
    Duplicate,
    Edit,
    Export,
    ExportBlock,
    ExportState,
    Forget,
    Load,
    Move,
    Park,
    ParkBlock,
    ParkState,
    Restore,
    RestoreBlock,
    RestoreState,
    Save,
    SaveState,
    ShareAttention,
    Swap,
)
from .edits import Edited, carry_out
from .places import Places
from .state_format import cut, num_cells, parse
from .states import Cache, States

logger = logging.getLogger(__name__)

_END = -1
"""In llama.cpp's ranges of positions: to the end."""


class UnifiedEdits:
    """Edits the cells of `cache`, which has `slots` slots.

    With `places`, pictures take fewer positions than cells; then no holder's pictures are parked.
    With `checked_window` each copy is looked at, and what is left where last cells are given up:
    whether it ends where it should, and has what a window of so many positions needs; 0 stands for
    a recurrent state. A `blank` is what cannot be cut of no sequence. With `are_windows_apart`
    layers with a window have a small cache of their own: what a holder above the slots has in them
    is in host memory, so it takes no room there.
    """

    def __init__(
        self,
        cache: Cache,
        slots: int,
        places: Places | None = None,
        *,
        checked_window: int | None = None,
        blank: State = b"",
        are_windows_apart: bool = False,
    ) -> None:
        self._places = places
        self._checked_window = checked_window
        self._not_copied: list[int] = []
        self._memory = cache.memory
        self._states = States(cache)
        self._spare = slots
        self._parked: dict[int, list[State]] = {}
        self._saved: list[State] = []
        self._windows: dict[int, State] = {}
        self._blank = blank
        self._are_windows_apart = are_windows_apart
        self._blocks: dict[int, State] = {}
        self._apart: dict[int, State] = {}

    def carry_out(self, edits: Iterable[Edit]) -> Edited:
        """All of `edits`, in their order."""
        self._saved.clear()
        self._not_copied.clear()
        not_loaded, seconds = carry_out(edits, edit=self._edit, move=self._move)
        return Edited((*not_loaded, *self._not_copied), tuple(self._saved), seconds)

    def _edit(self, edit: Edit) -> None:
        memory = self._memory
        match edit:
            case Adopt(holder, stored):
                self._parked[holder] = [piece.state for piece in reversed(stored.pieces)]
            case Clear(holder, start):
                self._parked.pop(holder, None)
                self._windows.pop(holder, None)
                start = self._position(holder, start)
                llama_cpp.llama_memory_seq_rm(memory, self._number(holder), start, _END)
                if self._places is not None:
                    self._places.cut(holder, edit.start)
                if start and self._checked_window is not None and not self._is_whole(holder, start):
                    self._not_copied.append(holder)
            case Copy(source, holder, length, is_rolled_back, _):
                if not self._copy(source, holder, length, is_rolled_back=is_rolled_back):
                    self._not_copied.append(holder)
            case AdoptBlock(block, state):
                self._blocks[block] = state
            case AdoptState(checkpoint, state):
                self._apart[checkpoint] = state
            case Forget(blocks, checkpoint):
                for block in blocks:
                    del self._blocks[block]
                if checkpoint is not None:
                    del self._apart[checkpoint]
            case ExportBlock(block):
                self._saved.append(self._blocks[block])
            case ExportState(checkpoint):
                self._saved.append(self._apart[checkpoint])
            case ShareAttention(source, holder, length):
                if not self._share_attention(self._number(source), self._number(holder), length):
                    self._not_copied.append(holder)
            case Discard(slot, start, count):
                llama_cpp.llama_memory_seq_rm(memory, slot, start, start + count)
                llama_cpp.llama_memory_seq_add(memory, slot, start + count, _END, -count)
            case _:
                raise TypeError(f"only with streams: {edit}")

    def _move(self, edit: Move) -> Iterable[int]:
        """The holders for which it did not work."""
        match edit:
            case Load(holder, stored):
                if not self._load(holder, [piece.state for piece in stored.pieces]):
                    return (holder,)
            case Park(holder, start, count):
                self._parked.setdefault(holder, []).append(self._read(holder, start, count))
                llama_cpp.llama_memory_seq_rm(self._memory, self._number(holder), start, _END)
            case Restore(holder, count):
                start = self._length(holder)
                is_there = self._write(holder, self._parked[holder].pop())
                if not is_there or self._length(holder) != start + count:
                    return (holder,)
            case ParkBlock(holder, start, count, block):
                self._blocks[block] = self._read_block(holder, start, count)
            case ParkState(holder, length, checkpoint):
                self._apart[checkpoint] = self._read_apart(holder, length)
            case RestoreBlock(holder, start, count, block):
                if not self._write_block(holder, start, count, self._blocks[block]):
                    return (holder,)
            case RestoreState(holder, length, checkpoint):
                if not self._write_apart(holder, length, self._apart[checkpoint]):
                    return (holder,)
            case Save(id, slot, start, count):
                self._saved.append(self._save(id, slot, start, count))
            case SaveState(id, _, holder, length, _, checkpoint):
                self._saved.append(self._save_state(id, holder, length, checkpoint))
            case Export(holder, start, count):
                self._saved.append(self._export(holder, start, count))
            case Duplicate() | Swap():
                raise TypeError(f"only with streams: {edit}")
            case _:
                assert_never(edit)
        return ()

    def number(self, slot: int) -> int:
        """llama.cpp's `seq_id` of `slot`: the same."""
        return slot

    def _number(self, holder: int) -> int:
        """llama.cpp's `seq_id` of a holder."""
        return holder if holder < self._spare else holder + 1

    def _position(self, holder: int, cell: int) -> int:
        """llama.cpp's position of a cell at a border."""
        return cell if self._places is None else self._places.position(holder, cell)

    def _length(self, holder: int) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, self._number(holder))) + 1

    def _copy(self, source: int, holder: int, length: int, *, is_rolled_back: bool) -> bool:
        """Whether `holder` now has what it should, as far as that can be seen."""
        end = self._position(source, length)
        if is_rolled_back and self._checked_window == 0:
            if not self._copy_rolled_back(source, holder, end):
                return False
        elif not self._are_windows_apart:
            self._share(source, self._number(holder), end)
        elif not self._copy_in_parts(source, holder, end):
            return False
        if self._places is not None:
            self._places.copy(source, holder, length)
            return True
        is_apart = holder >= self._spare and self._are_windows_apart
        return self._checked_window is None or is_apart or self._is_whole(holder, length)

    def _share(self, source: int, number: int, end: int) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, self._number(source), number, 0, end)

    def _copy_rolled_back(self, source: int, holder: int, end: int) -> bool:
        """Share the cells of attention, and copy the state.

        llama.cpp notes for each id which of the last states is its present one, and `seq_cp` leaves
        that out. A state that is read out is the present one.
        """
        state = self._states.read_apart_briefly(self._number(source))
        self._share(source, self._number(holder), end)
        return self._states.write_apart(self._number(holder), state)

    def _copy_in_parts(self, source: int, holder: int, end: int) -> bool:
        """Share the cells of layers that look back to the start, and copy the window."""
        if source in self._windows:
            window = self._windows[source]
            self._share(source, self._number(holder), end)
        elif source >= self._spare:
            return False  # it could not be restored
        else:
            window = self._states.read_apart(source)
            if not self._share_attention(self._number(source), self._number(holder), end):
                return False
        if holder < self._spare:
            return self._states.write_apart(holder, window)
        self._windows[holder] = window
        return bool(window)

    def _share_attention(self, source: int, number: int, end: int) -> bool:
        """Share the cells of layers that look back to the start; whether it worked.

        The spare id gets all, loses what cannot be cut for a blank, and gives the rest on.
        """
        if not self._spare_attention(source, 0, end):
            return False
        llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, 0, end)
        self._empty_spare()
        return True

    def _spare_attention(self, source: int, start: int, end: int) -> bool:
        """The spare id gets cells of layers that look back to the start; whether it worked."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, self._spare, start, end)
        return self._states.write_apart(self._spare, self._blank)

    def _empty_spare(self) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, 0, _END)

    def _read_block(self, holder: int, start: int, count: int) -> State:
        """The attention of `count` cells of `holder`; empty if it cannot be read."""
        is_there = self._spare_attention(self._number(holder), start, start + count)
        state = self._states.read(self._spare) if is_there else b""
        self._empty_spare()
        return state

    def _write_block(self, holder: int, start: int, count: int, state: State) -> bool:
        """Append a block to the cells of `holder`; whether it worked."""
        is_written = self._states.write(self._spare, state)
        end = start + count
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, start, end)
        self._empty_spare()
        return is_written

    def _read_apart(self, holder: int, length: int) -> State:
        """What cannot be cut of `holder`, which stands at `length`; empty if it cannot be read."""
        if holder in self._windows:
            return self._windows[holder]
        if holder < self._spare:
            return self._states.read_apart(holder)
        self._share(holder, self._spare, length)
        state = self._states.read_apart(self._spare)
        self._empty_spare()
        return state

    def _write_apart(self, holder: int, length: int, state: State) -> bool:
        """Give `holder` what cannot be cut, so that it stands at `length`; whether it worked."""
        if self._are_windows_apart:
            self._windows[holder] = state
            return bool(state)
        is_written = self._states.write_apart(self._spare, state)
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, 0, length)
        self._empty_spare()
        return is_written and self._is_whole(holder, length)

    def _save_state(
        self, id: SequenceId, holder: int, length: int, checkpoint: int | None
    ) -> State:
        try:
            if checkpoint is not None:
                return self._apart[checkpoint]
            return self._read_apart(holder, length)
        except Exception:  # the boundary of a sequence: it is not saved, nobody else notices
            logger.exception("a state of sequence %d could not be read", id)
            return b""

    def _is_whole(self, holder: int, length: int) -> bool:
        """Whether a holder has what going on after `length` positions needs, as far as can be seen.

        Cells behind the window of the next token are given to others where they have one owner. A
        recurrent state has one position, the last.
        """
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, self._number(holder))
        most = max(0, length + 1 - self._checked_window) if self._checked_window else length - 1
        return self._length(holder) == length and 0 <= first <= most

    def _read(self, holder: int, start: int, count: int) -> State:
        """The state of `count` cells of `holder`; empty if it cannot be read."""
        if start == 0 and holder < self._spare and count == self._length(holder):
            return self._states.read(holder)  # all of it, as some models can only give it
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, number, self._spare, start, start + count)
        state = self._states.read(self._spare)
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, 0, _END)
        return state

    def _save(self, id: SequenceId, slot: int, start: int, count: int) -> State:
        try:
            if self._blank:
                return self._read_block(slot, start, count)
            return self._read(slot, start, count)
        except Exception:  # the boundary of a sequence: its state is not saved, nobody else notices
            logger.exception("the state of sequence %d could not be read", id)
            return b""

    def _export(self, holder: int, start: int, count: int) -> State:
        try:
            if start < (end := self._length(holder)):
                return self._read(holder, start, count)
            return _cut_of(reversed(self._parked[holder]), start - end, count)
        except Exception:  # the boundary of an export: it ends there, and nobody else notices
            logger.exception("the state of a prefix could not be read")
            return b""

    def _write(self, holder: int, state: State) -> bool:
        """Append the cells in `state` to those of `holder`; whether it worked."""
        start = self._length(holder)
        is_written = self._states.write(self._spare, state)
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, self._spare)
        if is_written and first == start:
            number = self._number(holder)
            llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, start, _END)
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, 0, _END)
        return is_written and first == start

    def _load(self, slot: int, states: list[State]) -> bool:
        """Load all of `states`; whether it worked. A single state is written as it was read."""
        if len(states) == 1:
            return self._states.write(slot, states[0])
        return all(self._write(slot, state) for state in states)


def _cut_of(states: Iterable[State], start: int, count: int) -> State:
    """`count` cells from `start` on, all of which lie in one of `states`."""
    for state in states:
        parsed = parse(state)
        if start < (length := num_cells(parsed)):
            return cut(parsed, start, count)
        start -= length
    return b""
