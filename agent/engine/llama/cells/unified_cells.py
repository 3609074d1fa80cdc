"""llama.cpp's cells if all sequences share one cache.

Cached prefixes have `seq_id`s above the slots. With a unified cache llama.cpp's memory accepts any
id below its own limit. But every id that batches may use (`n_seq_max`) costs a row of logits and
work in each decode. One spare id is between the two kinds. llama.cpp saves and loads states only
of ids that batches may use, and only all cells of an id at once. So a piece of a sequence gets the
spare id while it is read or written.

llama.cpp reads and writes the uncuttable state separately (`PARTIAL_ONLY`): the cells of layers
with a sliding window, and recurrent states. A checkpoint's block has none of that. For the block,
the spare id gets a *blank*: an empty recurrent state, or the window of a token behind all
positions, since llama.cpp does not accept an empty window.
"""

from collections.abc import Sequence

import llama_cpp.llama_cpp as llama_cpp

from ...prompt_store.stored_prompt import State
from ...step import Copy
from .places import Places
from .states import END, Cache, States


class UnifiedCells:
    """The cells of `cache`, which has `slots` slots.

    With `places`, pictures take fewer positions than cells; then nothing is offloaded. With
    `checked_window`, copies and the cells that `clear` leaves are checked: they must end at the
    right position and contain a window of that many positions. A `checked_window` of 0 means a
    recurrent state. A `blank` is the uncuttable state of an empty sequence. With
    `are_windows_apart`, layers with a window have a small cache of their own. Holders above the
    slots then keep their windows in host memory, so they take no room in that cache.
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
        self._memory = cache.memory
        self._states = States(cache)
        self._states_apart = States(cache, are_apart=True)
        self._spare = slots
        self._windows: dict[int, State] = {}
        self._blank = blank
        self._are_windows_apart = are_windows_apart

    def clear(self, holder: int, start: int) -> bool:
        """Free cells; return whether the sequence can continue with the remaining ones."""
        self._windows.pop(holder, None)
        end = self._position(holder, start)
        llama_cpp.llama_memory_seq_rm(self._memory, self._number(holder), end, END)
        if self._places is not None:
            self._places.cut(holder, start)
        return not end or self._checked_window is None or self._is_whole(holder, end)

    def copy(self, edit: Copy) -> bool:
        """Give a holder the first cells of another holder."""
        source, holder, length = edit.source, edit.holder, edit.length
        if edit.is_bare:
            return self._share_attention(self._number(source), self._number(holder), length)
        return self._copy(source, holder, length, is_rolled_back=edit.is_rolled_back)

    def place(self, holder: int, stream: int) -> None:
        """Raise `TypeError`: there are no streams."""
        raise TypeError(f"there are no streams: holder {holder}, stream {stream}")

    def discard(self, slot: int, start: int, count: int) -> None:
        """Remove cells, and move later cells up."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, start, start + count)
        llama_cpp.llama_memory_seq_add(self._memory, slot, start + count, END, -count)

    def end(self) -> None:
        """Do nothing: no data is kept between edits."""

    def number(self, slot: int) -> int:
        """Return llama.cpp's `seq_id` of `slot`: the same number."""
        return slot

    def _number(self, holder: int) -> int:
        """Return llama.cpp's `seq_id` of a holder."""
        return holder if holder < self._spare else holder + 1

    def _position(self, holder: int, cell: int) -> int:
        """Return llama.cpp's position of a cell at a border."""
        return cell if self._places is None else self._places.position(holder, cell)

    def _length(self, holder: int) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, self._number(holder))) + 1

    def _copy(self, source: int, holder: int, length: int, *, is_rolled_back: bool) -> bool:
        """Copy cells; return whether `holder` is complete, as far as that can be checked."""
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
        """Share the cells of attention, and copy the recurrent state.

        llama.cpp records per id which of its last states is current, and `seq_cp` does not copy
        that record. A state that was read is always the current one.
        """
        state = self._states_apart.read_briefly(self._number(source))
        self._share(source, self._number(holder), end)
        return self._states_apart.write(self._number(holder), state)

    def _copy_in_parts(self, source: int, holder: int, end: int) -> bool:
        """Share the cells of layers that attend to the start, and copy the window."""
        if source in self._windows:
            window = self._windows[source]
            self._share(source, self._number(holder), end)
        elif source >= self._spare:
            return False  # it could not be restored
        else:
            window = self._states_apart.read(source)
            if not self._share_attention(self._number(source), self._number(holder), end):
                return False
        if holder < self._spare:
            return self._states_apart.write(holder, window)
        self._windows[holder] = window
        return bool(window)

    def _share_attention(self, source: int, number: int, end: int) -> bool:
        """Share the cells of layers that attend to the start; return whether it worked.

        The spare id gets all cells and a blank in place of the uncuttable state. Then `number`
        gets the cells of the spare id.
        """
        if not self._spare_attention(source, 0, end):
            return False
        llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, 0, end)
        self._empty_spare()
        return True

    def _spare_attention(self, source: int, start: int, end: int) -> bool:
        """Give the spare id the cells of layers that attend to the start; return if it worked."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, self._spare, start, end)
        return self._states_apart.write(self._spare, self._blank)

    def _empty_spare(self) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, 0, END)

    def read(self, holder: int, start: int, count: int) -> State:
        """Return the state of `count` cells of `holder`; empty if it cannot be read.

        If there is a blank, the state contains only the attention of these cells.
        """
        if self._blank:
            is_there = self._spare_attention(self._number(holder), start, start + count)
            state = self._states.read(self._spare) if is_there else b""
            self._empty_spare()
            return state
        if start == 0 and holder < self._spare and count == self._length(holder):
            return self._states.read(holder)  # all of it, as some models can only give it
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, number, self._spare, start, start + count)
        is_there = llama_cpp.llama_memory_seq_pos_max(self._memory, self._spare) >= start
        state = self._states.read(self._spare) if is_there else b""
        self._empty_spare()
        return state

    def write(self, holder: int, start: int, pieces: Sequence[tuple[int, State]]) -> bool:
        """Append `pieces` to the `start` cells of `holder`; return whether it worked."""
        if holder < self._spare and not start and len(pieces) == 1:
            return self._states.write(holder, pieces[0][1])  # as some models can only take it
        end = start
        for count, state in pieces:
            if not self._append(holder, end, end + count, state):
                return False
            end += count
        return bool(self._blank) or self._length(holder) == end

    def read_state(self, holder: int, length: int) -> State:
        """Return the uncuttable state of `holder` at `length`; empty if it cannot be read."""
        if holder in self._windows:
            return self._windows[holder]
        if holder < self._spare:
            return self._states_apart.read(holder)
        self._share(holder, self._spare, length)
        state = self._states_apart.read(self._spare)
        self._empty_spare()
        return state

    def write_state(self, holder: int, length: int, state: State) -> bool:
        """Write the uncuttable state of `holder` at `length`; return whether it worked."""
        if self._are_windows_apart:
            self._windows[holder] = state
            return bool(state)
        is_written = self._states_apart.write(self._spare, state)
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, 0, length)
        self._empty_spare()
        return is_written and self._is_whole(holder, length)

    def _is_whole(self, holder: int, length: int) -> bool:
        """Return whether a holder can continue after `length` positions, as far as known.

        llama.cpp reuses cells behind the window of the next token if they have only one owner. A
        recurrent state has only the last position.
        """
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, self._number(holder))
        most = max(0, length + 1 - self._checked_window) if self._checked_window else length - 1
        return self._length(holder) == length and 0 <= first <= most

    def _append(self, holder: int, start: int, end: int, state: State) -> bool:
        """Append the cells in `state` to the cells of `holder`; return whether it worked."""
        is_written = self._states.write(self._spare, state)
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, self._spare)
        if is_next := is_written and (bool(self._blank) or first == start):
            number = self._number(holder)
            last = end if self._blank else END  # a blank may lie behind all positions
            llama_cpp.llama_memory_seq_cp(self._memory, self._spare, number, start, last)
        self._empty_spare()
        return is_next
