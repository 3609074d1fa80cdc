"""Encoded media: rows of embeddings, and a cache of them by digest."""

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class EncodedMedia:
    """`rows` are (positions, width), what the model takes in place of token embeddings.

    They advance the sequence by `num_advanced` of llama.cpp's positions. Where the model has places
    in several dimensions, row i lies at `origins[i] + slopes[i] * p`, each with 4 parts, when the
    media begin at llama.cpp's position p.
    """

    rows: NDArray[np.float32]
    num_advanced: int
    origins: NDArray[np.int32] | None = None
    slopes: NDArray[np.int32] | None = None

    @property
    def num_bytes(self) -> int:
        """Of the rows, which are nearly all."""
        return self.rows.nbytes


class EncodedCache:
    """At most `limit` bytes of encoded media, by digest: the least recently used go first.

    Safe from any thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._media: dict[bytes, EncodedMedia] = {}
        self.num_bytes = 0

    def get(self, digest: bytes) -> EncodedMedia | None:
        """What has this digest; it is the most recently used one then."""
        with self._lock:
            media = self._media.pop(digest, None)
            if media is not None:
                self._media[digest] = media
            return media

    def put(self, digest: bytes, media: EncodedMedia) -> None:
        """Keep `media`, unless they alone are more than the limit."""
        with self._lock:
            if digest in self._media or media.num_bytes > self._limit:
                return
            self._media[digest] = media
            self.num_bytes += media.num_bytes
            while self.num_bytes > self._limit:
                self.num_bytes -= self._media.pop(next(iter(self._media))).num_bytes
