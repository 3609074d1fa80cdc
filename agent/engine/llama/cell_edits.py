"""A step's edits, carried out on llama.cpp's cells.

Kept prefixes belong to numbers beyond the slots: with a unified cache llama.cpp's memory takes any
below its own limit, while every number that batches may use (`n_seq_max`) costs a row of logits and
work in each decode. One number between them belongs to nobody: llama.cpp reads out the cells of
numbers that batches may use only, so a kept prefix takes it for as long as that lasts.
"""

from collections.abc import Iterable
from typing import assert_never

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from ..step import Clear, Copy, Discard, Edit, Load, Park, Restore
from .context import Context
from .states import State, States

_END = -1
"""In llama.cpp's ranges of positions: to the end."""


class CellEdits:
    """On the cells of `context`, which has so many `slots`."""

    def __init__(self, context: Context, slots: int) -> None:
        self._memory = context.memory
        self._states = States(context)
        self._spare = slots
        self._parked: dict[int, State] = {}

    def carry_out(self, edits: Iterable[Edit]) -> tuple[int, ...]:
        """All of `edits`, in their order; the slots that were to load something and could not."""
        return tuple(
            edit.slot for edit in edits if not self._edit(edit) and isinstance(edit, Load | Restore)
        )

    def save(self, slot: int) -> bytes:
        """The state of the cells of `slot`."""
        return self._states.read(slot).tobytes()

    def cut(self, slot: int, length: int) -> None:
        """`slot` gives up its cells from position `length` on."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, length, _END)

    def _edit(self, edit: Edit) -> bool:
        """Whether it worked."""
        memory = self._memory
        match edit:
            case Clear(holder, start):
                if not start:
                    self._parked.pop(holder, None)
                llama_cpp.llama_memory_seq_rm(memory, self._number(holder), start, _END)
            case Copy(source, holder, length):
                numbers = self._number(source), self._number(holder)
                llama_cpp.llama_memory_seq_cp(memory, *numbers, 0, length)
            case Discard(slot, start, count):
                llama_cpp.llama_memory_seq_rm(memory, slot, start, start + count)
                llama_cpp.llama_memory_seq_add(memory, slot, start + count, _END, -count)
            case Load(slot, stored, length):
                state = np.frombuffer(stored.state, np.uint8)
                return self._states.write(slot, state, len(stored.tokens), length)
            case Park(holder):
                self._park(holder)
            case Restore(source, slot, length):
                return self._states.write(slot, self._parked[source], None, length)
            case _:
                assert_never(edit)
        return True

    def _number(self, holder: int) -> int:
        """llama.cpp's `seq_id` of a holder."""
        return holder if holder < self._spare else holder + 1

    def _park(self, holder: int) -> None:
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, number, self._spare, 0, _END)
        self._parked[holder] = self._states.read(self._spare)
        for one in (number, self._spare):
            llama_cpp.llama_memory_seq_rm(self._memory, one, 0, _END)
