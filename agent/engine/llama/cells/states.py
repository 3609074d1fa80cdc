"""Reads and writes states: the content of cells in llama.cpp's own format."""

import ctypes
import logging
from typing import Any, Protocol

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ...prompt_store.stored_prompt import State

logger = logging.getLogger(__name__)

END = -1
"""The end of all positions in llama.cpp's ranges."""

_MOST_SCRATCH = 128 * 2**20
"""Maximum bytes of a buffer for states copied from one stream to another."""


class Cache(Protocol):
    """A context and its cells; both attributes are llama.cpp's pointers."""

    handle: Any
    memory: Any


class States:
    """The states of sequences of `cache`, by `seq_id`; batches must be able to use the id.

    With `are_apart`, only the states of layers that cannot be cut: with a sliding window, and
    recurrent layers. All other layers keep their states.
    """

    def __init__(self, cache: Cache, *, are_apart: bool = False) -> None:
        self._context = cache.handle
        self._memory = cache.memory
        self._flags = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if are_apart else 0
        self._scratch: dict[int, NDArray[np.uint8]] = {}

    def size(self, number: int) -> int:
        """Return the size of the state in bytes."""
        return int(llama_cpp.llama_state_seq_get_size_ext(self._context, number, self._flags))

    def read(self, number: int) -> State:
        """Return the state of `number`; empty if memory is short."""
        try:
            state = np.empty(self.size(number), np.uint8)
        except MemoryError:
            logger.warning("there is no host memory for the state of a sequence")
            return b""
        return self._read(number, state)

    def read_briefly(self, number: int, place: int = 0) -> State:
        """Return the same as `read` in a buffer, valid until the next read with this `place`.

        Used memory takes a tenth of the time of new memory.
        """
        size = self.size(number)
        if size > _MOST_SCRATCH:
            return self.read(number)
        if place not in self._scratch or self._scratch[place].size < size:
            self._scratch[place] = np.empty(size, np.uint8)
        return self._read(number, self._scratch[place][:size])

    def write(self, number: int, state: State) -> bool:
        """Replace the state of `number`. Returns `False` on failure: it then has no cells."""
        data = np.frombuffer(state, np.uint8)
        if data.size and data.size == llama_cpp.llama_state_seq_set_data_ext(
            self._context, _pointer(data), data.size, number, self._flags
        ):
            return True
        llama_cpp.llama_memory_seq_rm(self._memory, number, 0, END)
        return False

    def _read(self, number: int, state: NDArray[np.uint8]) -> State:
        written = llama_cpp.llama_state_seq_get_data_ext(
            self._context, _pointer(state), state.size, number, self._flags
        )
        return state[:written].data


def _pointer(state: NDArray[np.uint8]) -> Any:
    return ctypes.cast(state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
