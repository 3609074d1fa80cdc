"""llama.cpp's cells in the layout `streams`: a `seq_id` is a stream with its own cells.

llama.cpp always copies the whole capacity of a stream to another stream. So cells are copied
through their state, which is much smaller for a part of a stream's cells.
"""

import logging
from collections.abc import Sequence

import llama_cpp.llama_cpp as llama_cpp

from ...prompt_store.stored_prompt import State
from ...step import Copy
from .state_format import CellStates, UnknownStateError, cut, join, parse
from .states import END, Cache, States

logger = logging.getLogger(__name__)


class StreamCells:
    """The cells of `cache`, which has `num_streams` streams. At first each slot has a stream."""

    def __init__(self, cache: Cache, num_streams: int) -> None:
        self._memory = cache.memory
        self._states = States(cache)
        self._num_streams = num_streams
        self._stream_of = {number: number for number in range(num_streams)}
        self._last_read: tuple[int, CellStates] | None = None
        """The holder whose cells were read last, and their content."""

    def number(self, slot: int) -> int:
        """Return llama.cpp's `seq_id` of `slot`."""
        return self._stream_of[slot]

    def clear(self, holder: int, start: int) -> bool:
        """Free cells, if `holder` has a stream."""
        self.end()
        if holder in self._stream_of:
            self._remove(self._stream_of[holder], start)
        return True

    def copy(self, edit: Copy) -> bool:
        """Copy the first `edit.length` cells of `edit.source` to the stream of `edit.holder`.

        Returns whether that worked.
        """
        self.end()
        number = self._stream_of[edit.holder]
        state = self._states.read_briefly(self._stream_of[edit.source])
        is_written = self._states.write(number, state)
        self._remove(number, edit.length)
        return self._checked(number, edit.length, is_written=is_written)

    def place(self, holder: int, stream: int) -> None:
        """Assign `stream` with its content to `holder`."""
        self.end()
        others = {one: at for one, at in self._stream_of.items() if at != stream}
        self._stream_of = others | {holder: stream}

    def discard(self, slot: int, start: int, count: int) -> None:
        """Remove cells, and move later cells up."""
        self.end()
        number = self._stream_of[slot]
        llama_cpp.llama_memory_seq_rm(self._memory, number, start, start + count)
        llama_cpp.llama_memory_seq_add(self._memory, number, start + count, END, -count)

    def read(self, holder: int, start: int, count: int) -> State:
        """Return the state of `count` cells. The stream is read only once for several parts."""
        if self._last_read is None or self._last_read[0] != holder:
            self._last_read = None  # it is read to where the last one is
            self._last_read = holder, parse(self._states.read_briefly(self._stream_of[holder]))
        return cut(self._last_read[1], start, count)

    def write(self, holder: int, start: int, pieces: Sequence[tuple[int, State]]) -> bool:
        """Append `pieces` to the `start` cells of `holder`; return whether it worked."""
        self.end()
        number = self._stream_of[holder]
        states = [state for _, state in pieces]
        length = start + sum(count for count, _ in pieces)
        try:
            if start:
                states.insert(0, self._states.read_briefly(number))
            whole = join(states, length, self._num_streams)
        except UnknownStateError as error:
            logger.warning("a stored prompt is not used: %s", error)
            whole = b""
        return self._checked(number, length, is_written=self._states.write(number, whole))

    def read_state(self, holder: int, length: int) -> State:
        """Raise `TypeError`: only models with an uncuttable state have a separate state."""
        raise TypeError(f"a state of holder {holder} at {length}")

    def write_state(self, holder: int, length: int, state: State) -> bool:
        """Raise `TypeError`: only models with an uncuttable state have a separate state."""
        raise TypeError(f"a state of holder {holder} at {length}")

    def end(self) -> None:
        """Forget the last read, whose cells may change."""
        self._last_read = None

    def _checked(self, number: int, length: int, *, is_written: bool) -> bool:
        """Return whether the stream has `length` cells; empty the stream if it has not."""
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, number)
        last = llama_cpp.llama_memory_seq_pos_max(self._memory, number)
        if is_written and first == 0 and last == length - 1:
            return True
        self._remove(number)
        return False

    def _remove(self, number: int, start: int = 0) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, number, start, END)
