"""The two tensors of a weight cut along the adapter's rank, for weights too large for one part.

What an adapter adds to a weight is B times A, scaled by alpha / rank. A has a row for each rank and
B a column, so some of the rows and the same columns are an adapter of a smaller rank, and all of
these together add what the whole one does, if each one's alpha is smaller in the same proportion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np

_BYTES = {0: 4, 1: 2, 30: 2}
"""Of an element, by type: 32-bit floats and both kinds of 16 bits. Blocks cannot be cut."""

_EMBEDDING = b"token_embd."
"""Of this weight A is transposed, since rows are looked up in it."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tensor of a file, `num_rows` of `num_columns` elements, which begins at `start`."""

    kind: int
    num_columns: int
    num_rows: int
    start: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.num_rows * self.num_columns * _BYTES[self.kind]

    @classmethod
    def of(cls, kind: int, shape: Sequence[int], start: int, num_bytes: int) -> Self | None:
        """`None` unless it is one of floats, with `num_bytes` or somewhat less."""
        if kind not in _BYTES or len(shape) != 2:
            return None
        matrix = cls(kind, shape[0], shape[1], start)
        return matrix if 0 < matrix.size <= num_bytes else None


@dataclass(frozen=True, slots=True)
class RankSlice:
    """Ranks from `first` to before `stop`, of `rank`. `by_rows`: of `a` they are the rows."""

    a: Matrix
    b: Matrix
    by_rows: bool
    rank: int
    first: int
    stop: int

    @property
    def share(self) -> float:
        """Of the rank, and so of alpha."""
        return (self.stop - self.first) / self.rank

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Columns and rows of what is left of `a` and of `b`."""
        count = self.stop - self.first
        of_a = (self.a.num_columns, count) if self.by_rows else (count, self.a.num_rows)
        return of_a, (count, self.b.num_rows)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of what is left of `a` and of `b`."""
        (a, more_a), (b, more_b) = self.shapes
        return a * more_a * _BYTES[self.a.kind], b * more_b * _BYTES[self.b.kind]

    def write_a(self, path: Path, part: IO[bytes]) -> None:
        """Its part of `a`, which is in the file at `path`."""
        some = slice(self.first, self.stop)
        (
            _elements(path, self.a)[some] if self.by_rows else _elements(path, self.a)[:, some]
        ).tofile(part)

    def write_b(self, path: Path, part: IO[bytes]) -> None:
        """Its part of `b`."""
        _elements(path, self.b)[:, self.first : self.stop].tofile(part)


def rank_slices(name: bytes, a: Matrix, b: Matrix, most: int) -> Iterator[RankSlice]:
    """Parts of `most` bytes, or of one rank, of the weight `name`; none if it cannot be cut."""
    rank, by_rows = b.num_columns, not name.startswith(_EMBEDDING)
    if rank != (a.num_rows if by_rows else a.num_columns):
        return
    step = max(1, most * rank // (a.size + b.size))
    for first in range(0, rank, step):
        yield RankSlice(a, b, by_rows, rank, first, min(rank, first + step))


def _elements(path: Path, matrix: Matrix) -> "np.memmap[tuple[int, int], np.dtype[np.uint16]]":
    return np.memmap(
        path,
        dtype=f"u{_BYTES[matrix.kind]}",
        mode="r",
        offset=matrix.start,
        shape=(matrix.num_rows, matrix.num_columns),
    )
