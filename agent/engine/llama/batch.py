"""The batch that llama.cpp decodes, filled through NumPy.

NumPy owns the memory, and llama.cpp gets pointers into it, laid out once. Each token belongs to one
sequence, so a step only writes tokens, positions, sequence ids and which logits it needs.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from ..step import Run


class Batch:
    """A batch of up to `size` tokens. `raw` is the argument of `llama_decode`."""

    def __init__(self, size: int) -> None:
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._slots = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        first = self._slots.ctypes.data
        self._slot_pointers = (first + self._slots.itemsize * np.arange(size)).astype(np.uintp)
        self.raw = llama_cpp.llama_batch(
            n_tokens=0,
            token=pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=pointer(self._positions, ctypes.c_int32),
            n_seq_id=pointer(self._counts, ctypes.c_int32),
            seq_id=pointer(self._slot_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._outputs, ctypes.c_int8),
        )

    def fill(
        self,
        runs: Sequence[Run],
        number: Callable[[int], int] = int,
        position: Callable[[int, int], int] | None = None,
    ) -> None:
        """Write `runs`; `number` maps a slot to its `seq_id`, `position` a cell to its position."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        outputs: list[int] = []
        for run in runs:
            count = len(run.tokens)
            first = len(tokens) + run.first_scored
            outputs += range(first, first + len(run.scored))
            tokens += run.tokens
            start = run.start if position is None else position(run.slot, run.start)
            positions += range(start, start + count)
            slots += [number(run.slot)] * count
            if run.samples:
                outputs += range(len(tokens) - 1 - run.num_drafted, len(tokens))
        self.fill_rows(tokens, positions, slots, outputs)

    def fill_rows(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        numbers: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        """Write rows with token, position and `seq_id`; `outputs` are the rows with logits."""
        size = len(tokens)
        self._tokens[:size] = tokens
        self._positions[:size] = positions
        self._slots[:size] = numbers
        self._outputs[:size] = 0
        self._outputs[list(outputs)] = 1
        self.raw.n_tokens = size


def pointer(array: np.ndarray[Any, Any], kind: Any) -> Any:
    """Return a pointer to the beginning of `array`, which must outlive it."""
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
