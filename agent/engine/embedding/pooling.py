"""Pooling and normalisation: from an input's token vectors to its one vector.

RMS normalisation makes the mean of the squared components 1, so that components have the same size
in all models.
"""

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from ....shared.queries import Norm, Pooling

Rows = NDArray[np.float32]
"""One vector per row, in the order of the tokens."""


class Pool:
    """Pools an input's token vectors, added in any number of parts; at least one."""

    def __init__(self, pooling: Pooling) -> None:
        self._pooling = pooling
        self._first: Rows | None = None
        self._last: Rows | None = None
        self._sum: NDArray[np.float64] | None = None
        self._num_rows = 0

    def add(self, rows: Rows) -> None:
        """Add the next tokens' vectors."""
        if self._first is None:
            self._first = rows[0].copy()
            self._sum = np.zeros(rows.shape[1], np.float64)
        self._last = rows[-1].copy()
        self._num_rows += len(rows)
        self._sum += rows.sum(axis=0, dtype=np.float64)

    def vector(self) -> Rows:
        """Return the pooled vector. Raises `ValueError` if nothing was added."""
        if self._first is None or self._last is None or self._sum is None:
            raise ValueError("there is nothing to pool")
        match self._pooling:
            case "mean":
                return (self._sum / self._num_rows).astype(np.float32)
            case "cls":
                return self._first
            case "last" | "rank":
                return self._last
            case _:
                assert_never(self._pooling)


def normalized(vector: Rows, norm: Norm) -> Rows:
    """Return `vector` with the length of `norm`; a zero vector stays unchanged."""
    if norm == "none":
        return vector
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if norm == "rms":
        length /= float(np.sqrt(vector.size))
    return vector if length == 0 else (vector / length).astype(np.float32)
