"""States: what cells contain, in llama.cpp's own format, read out and written back."""

import ctypes
import logging
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ..prompt_store.stored_prompt import State
from .context import Context

logger = logging.getLogger(__name__)

_END = -1
"""In llama.cpp's ranges of positions: to the end."""


class States:
    """States of sequences of `context`, by llama.cpp's `seq_id`: one that batches may use."""

    def __init__(self, context: Context) -> None:
        self._context = context.handle
        self._memory = context.memory

    def size(self, number: int) -> int:
        """Size of the state in bytes."""
        return int(llama_cpp.llama_state_seq_get_size(self._context, number))

    def read(self, number: int) -> State:
        """What the cells of `number` contain; empty where there is no memory for it."""
        try:
            state = np.empty(self.size(number), np.uint8)
        except MemoryError:
            logger.warning("there is no host memory for the state of a sequence")
            return b""
        written = llama_cpp.llama_state_seq_get_data(
            self._context, _pointer(state), state.size, number
        )
        return state[:written].data

    def write(self, number: int, state: State) -> bool:
        """Replace the cells of `number` by those in `state`. False: it has no cells now."""
        data = np.frombuffer(state, np.uint8)
        if data.size and data.size == llama_cpp.llama_state_seq_set_data(
            self._context, _pointer(data), data.size, number
        ):
            return True
        llama_cpp.llama_memory_seq_rm(self._memory, number, 0, _END)
        return False


def _pointer(state: NDArray[np.uint8]) -> Any:
    return ctypes.cast(state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
