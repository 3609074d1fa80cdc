"""A step's edits, carried out on llama.cpp's streams: a `seq_id` is a stream with its own cells.

Between streams llama.cpp copies all that a cache could hold, whatever it holds. So what it does
hold goes by way of its state, which for a part of a stream's cells is much less.
"""

import logging
from collections.abc import Iterable
from typing import assert_never

import llama_cpp.llama_cpp as llama_cpp

from ...prompt_store.stored_prompt import State, StoredPrompt
from ...sequence import SequenceId
from ...step import (
    Adopt,
    Clear,
    Discard,
    Duplicate,
    Edit,
    Export,
    HandOver,
    Load,
    Move,
    Park,
    ParkBlock,
    ParkState,
    Place,
    Restore,
    RestoreBlock,
    RestoreState,
    Save,
    SaveState,
    Swap,
)
from .edits import Edited, carry_out
from .state_format import CellStates, UnknownStateError, cut, join, parse
from .states import Cache, States

logger = logging.getLogger(__name__)

_END = -1
"""In llama.cpp's ranges of positions: to the end."""

_Parked = State | StoredPrompt


class StreamEdits:
    """Edits the cells of `cache`, which has `num_streams`; at first each slot has one."""

    def __init__(self, cache: Cache, num_streams: int) -> None:
        self._memory = cache.memory
        self._states = States(cache)
        self._num_streams = num_streams
        self._stream_of = {number: number for number in range(num_streams)}
        self._parked: dict[int, _Parked] = {}
        self._saved: list[State] = []
        self._cut: tuple[SequenceId, CellStates] | None = None
        """Whose state was read last for these edits, and what it consists of."""
        self._exported: tuple[int, CellStates] | None = None
        """The same, of a prefix that is exported; that comes after all saves."""

    def number(self, slot: int) -> int:
        """llama.cpp's `seq_id` of `slot`."""
        return self._stream_of[slot]

    def carry_out(self, edits: Iterable[Edit]) -> Edited:
        """All of `edits`, in their order."""
        self._saved.clear()
        not_loaded, seconds = carry_out(edits, edit=self._edit, move=self._move)
        self._cut = self._exported = None
        return Edited(not_loaded, tuple(self._saved), seconds)

    def _edit(self, edit: Edit) -> None:
        match edit:
            case Adopt(holder, stored):
                self._parked[holder] = stored
            case Clear(holder, start):
                self._parked.pop(holder, None)
                if holder in self._stream_of:
                    self._remove(self._stream_of[holder], start)
            case Discard(slot, start, count):
                number = self._stream_of[slot]
                llama_cpp.llama_memory_seq_rm(self._memory, number, start, start + count)
                llama_cpp.llama_memory_seq_add(self._memory, number, start + count, _END, -count)
            case Place(holder, stream):
                others = {one: at for one, at in self._stream_of.items() if at != stream}
                self._stream_of = others | {holder: stream}
            case HandOver(source, holder):
                self._stream_of[holder] = self._stream_of.pop(source)
            case _:
                raise TypeError(f"not with streams: {edit}")

    def _move(self, edit: Move) -> Iterable[int]:
        """The holders for which it did not work."""
        match edit:
            case Park(holder):
                number = self._stream_of.pop(holder)
                self._parked[holder] = self._states.read(number)
                self._remove(number)
            case Duplicate(source, holder, length):
                return self._duplicate(source, holder, length)
            case Swap(first, second):
                return self._swap(first, second)
            case Save():
                self._saved.append(self._save(edit))
            case Export(holder, start, count):
                self._saved.append(self._export(holder, start, count))
            case Load() | Restore():
                raise TypeError(f"not with streams: {edit}")
            case ParkBlock() | ParkState() | RestoreBlock() | RestoreState() | SaveState():
                raise TypeError(f"only of models with checkpoints: {edit}")
            case _:
                assert_never(edit)
        return ()

    def _duplicate(self, source: int, holder: int, length: int) -> tuple[int, ...]:
        """Whose cells are lost: those of the source, if it was parked."""
        number = self._stream_of[holder]
        if source in self._parked:
            state, loser = self._unparked(source, length), source
        else:
            state, loser = self._states.read_briefly(self._stream_of[source]), holder
        is_written = self._states.write(number, state)
        self._remove(number, length)
        if is_written and self._has(number, length):
            return ()
        self._remove(number)
        return (loser,)

    def _unparked(self, holder: int, length: int) -> State:
        """Its first `length` cells at least; empty if they are not what they should be."""
        parked = self._parked[holder]
        if not isinstance(parked, StoredPrompt):
            return parked
        try:
            states = [piece.state for piece in parked.first(length).pieces]
            return join(states, length, self._num_streams)
        except UnknownStateError as error:
            logger.warning("a stored prompt is not used: %s", error)
            return b""

    def _swap(self, first: int, second: int) -> list[int]:
        """Whose cells are lost."""
        states = [self._taken(first, 0), self._taken(second, 1)]
        others = {first: second, second: first}
        self._stream_of = {one: others.get(at, at) for one, at in self._stream_of.items()}
        lost = {
            number
            for number, state in zip((second, first), states, strict=True)
            if state is not None and not self._states.write(number, state)
        }
        return [holder for holder, number in self._stream_of.items() if number in lost]

    def _taken(self, number: int, place: int) -> State | None:
        """The state of a stream, which is empty then; `None` if it was."""
        if self._length(number) == 0:
            return None
        state = self._states.read_briefly(number, place)
        self._remove(number)
        return state

    def _save(self, edit: Save) -> State:
        try:
            number = self._stream_of[edit.slot]
            if self._cut is None or self._cut[0] != edit.id:
                self._cut = edit.id, parse(self._states.read_briefly(number))
            return cut(self._cut[1], edit.start, edit.count)
        except Exception:  # the boundary of a sequence: its state is not saved, nobody else notices
            logger.exception("the state of sequence %d could not be read", edit.id)
            return b""

    def _export(self, holder: int, start: int, count: int) -> State:
        try:
            if self._exported is None or self._exported[0] != holder:
                self._cut = None  # it is read to where that one's state is
                self._exported = holder, parse(self._whole(holder))
            return cut(self._exported[1], start, count)
        except Exception:  # the boundary of an export: it ends there, and nobody else notices
            logger.exception("the state of a prefix could not be read")
            return b""

    def _whole(self, holder: int) -> State:
        """The state of a prefix, parked or not."""
        parked = self._parked.get(holder)
        if parked is None:
            return self._states.read_briefly(self._stream_of[holder])
        if isinstance(parked, StoredPrompt):
            return self._unparked(holder, len(parked.prompt))
        return parked

    def _remove(self, number: int, start: int = 0) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, number, start, _END)

    def _has(self, number: int, length: int) -> bool:
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, number)
        return first == 0 and self._length(number) == length

    def _length(self, number: int) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, number)) + 1
