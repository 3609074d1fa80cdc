"""Encoded media: rows of embeddings, their cache by digest, and batches of rows."""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ..context import pointer


@dataclass(frozen=True, slots=True, eq=False)
class EncodedMedia:
    """Encoded media. `rows` are (positions, width), used in place of token embeddings.

    The media advance the sequence by `num_advanced` of llama.cpp's positions. If positions have
    several dimensions and the media begin at llama.cpp's position p, row i has the position
    `origins[i] + slopes[i] * p`, with 4 parts each.
    """

    rows: NDArray[np.float32]
    num_advanced: int
    origins: NDArray[np.int32] | None = None
    slopes: NDArray[np.int32] | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes of the rows, which are nearly all bytes of the media."""
        return self.rows.nbytes


class EncodedCache:
    """A cache of at most `limit` bytes of encoded media, by digest; evicts the least recently used.

    Thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._media: dict[bytes, EncodedMedia] = {}
        self.num_bytes = 0

    def get(self, digest: bytes) -> EncodedMedia | None:
        """Return the media with this digest, and mark it as used."""
        with self._lock:
            media = self._media.pop(digest, None)
            if media is not None:
                self._media[digest] = media
            return media

    def put(self, digest: bytes, media: EncodedMedia) -> None:
        """Cache `media`, unless it alone exceeds the limit."""
        with self._lock:
            if digest in self._media or media.num_bytes > self._limit:
                return
            self._media[digest] = media
            self.num_bytes += media.num_bytes
            while self.num_bytes > self._limit:
                self.num_bytes -= self._media.pop(next(iter(self._media))).num_bytes


NUM_PARTS = 4
"""The parts of a position, for models whose positions have several dimensions."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of `media` for `seq_id`: `count` rows from `first` on.

    The media begin at `position`.
    """

    media: EncodedMedia
    first: int
    count: int
    seq_id: int
    position: int

    @property
    def places(self) -> NDArray[np.int32]:
        """The positions as an array (parts, count), with one part, or four with several
        dimensions.
        """
        some = slice(self.first, self.first + self.count)
        if self.media.origins is None or self.media.slopes is None:
            start = self.position + self.first
            return np.arange(start, start + self.count, dtype=np.int32)[np.newaxis]
        return (self.media.origins[some] + self.media.slopes[some] * self.position).T


class MediaBatch:
    """A batch of media for llama.cpp, with rows of embeddings in place of tokens.

    `raw` is the argument of `llama_decode`, valid while this object exists. No logits are
    requested.
    """

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
            embd=pointer(self._rows, ctypes.c_float),
            pos=pointer(self._places, ctypes.c_int32),
            n_seq_id=pointer(self._counts, ctypes.c_int32),
            seq_id=pointer(self._id_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._outputs, ctypes.c_int8),
        )
