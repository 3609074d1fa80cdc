"""States: what cells contain, in llama.cpp's own format, read out and written back."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from .context import Context

State = NDArray[np.uint8]

_END = -1
"""In llama.cpp's ranges of positions: to the end."""


class States:
    """Of sequences of `context`, by llama.cpp's `seq_id`, which must be one that batches use."""

    def __init__(self, context: Context) -> None:
        self._context = context.handle
        self._memory = context.memory

    def size(self, number: int) -> int:
        """Bytes."""
        return int(llama_cpp.llama_state_seq_get_size(self._context, number))

    def read(self, number: int) -> State:
        """What the cells of `number` contain."""
        state = np.empty(self.size(number), np.uint8)
        written = llama_cpp.llama_state_seq_get_data(
            self._context, _pointer(state), state.size, number
        )
        return state[:written]

    def write(self, number: int, state: State, num_tokens: int | None, length: int) -> bool:
        """Whether `number` got the first `length` of the cells in `state`.

        If `num_tokens` is given, `state` has to contain so many. Where it fails, it has none.
        """
        size = state.size
        if size and size == llama_cpp.llama_state_seq_set_data(
            self._context, _pointer(state), size, number
        ):
            num_cells = llama_cpp.llama_memory_seq_pos_max(self._memory, number) + 1
            if num_cells >= length and num_tokens in (None, num_cells):
                llama_cpp.llama_memory_seq_rm(self._memory, number, length, _END)
                return True
        llama_cpp.llama_memory_seq_rm(self._memory, number, 0, _END)
        return False


def _pointer(state: State) -> Any:
    return ctypes.cast(state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
