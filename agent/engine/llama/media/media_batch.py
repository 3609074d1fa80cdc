"""A batch of media for llama.cpp: rows of embeddings in place of tokens."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from .encoded import EncodedMedia

NUM_PARTS = 4
"""Of a place, for models that have places in several dimensions."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `media` from `first` on, for `seq_id`, in which they begin at `position`."""

    media: EncodedMedia
    first: int
    count: int
    seq_id: int
    position: int

    @property
    def places(self) -> NDArray[np.int32]:
        """(parts, count): one part, or four with places in several dimensions."""
        some = slice(self.first, self.first + self.count)
        if self.media.origins is None or self.media.slopes is None:
            start = self.position + self.first
            return np.arange(start, start + self.count, dtype=np.int32)[np.newaxis]
        return (self.media.origins[some] + self.media.slopes[some] * self.position).T


class MediaBatch:
    """`raw` is what `llama_decode` takes, as long as this exists. No logits are asked for."""

    def __init__(self, runs: Sequence[Rows]) -> None:
        rows = [run.media.rows[run.first : run.first + run.count] for run in runs]
        self._rows = np.ascontiguousarray(np.concatenate(rows), np.float32)
        places = np.concatenate([run.places for run in runs], axis=1)
        self._places = np.ascontiguousarray(places, np.int32)
        size = len(self._rows)
        self._ids = np.repeat(
            np.array([run.seq_id for run in runs], np.int32), [run.count for run in runs]
        )
        self._counts = np.ones(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        first = self._ids.ctypes.data
        self._id_pointers = (first + self._ids.itemsize * np.arange(size)).astype(np.uintp)
        self.raw = llama_cpp.llama_batch(
            n_tokens=size,
            token=None,
            embd=_pointer(self._rows, ctypes.c_float),
            pos=_pointer(self._places, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._id_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
