"""Finds the highest logits of a row without sorting the row."""

import math

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Ids = NDArray[np.intp]
Mask = NDArray[np.bool_]

WIDTH = 4096
"""Minimum columns of the table into which a row is folded; a shorter row is one line."""

LEAST_DRAW = 5e-324
"""The smallest draw, in place of 0: it chooses the first token that has a chance at all."""

FEW = 2048
"""Maximum number of tokens that are sorted."""

_SHARE = 10
"""If more than one of this many columns must be searched, searching the whole row is faster."""

_SPARSE = 4
"""Columns per highest token, so that few of these tokens share a column."""

_LEAST_FOLDED = 128

_SAMPLE = 1024

CAUTION = 3
"""Standard deviations by which a sample may be wrong."""


def without_nan(row: Row) -> Row:
    """Return `row` with NaN logits ruled out."""
    return np.where(np.isnan(row), np.float32(-np.inf), row)


def highest(row: Row, count: int, tops: Row | None = None) -> Ids:
    """Return the ids of the `count` highest logits, descending; `tops` are the row's tops, if
    known.
    """
    ids = contenders(row, count, tops)
    if ids.size > 2 * count + FEW:  # many are equal
        bound = np.partition(row[ids], -count)[-count]
        above = ids[row[ids] > bound]
        ids = np.concatenate((above, ids[row[ids] == bound][: count - above.size]))
    return ids[np.argsort(-row[ids])[:count]]


class Leaders:
    """The highest tokens of `row` in order, as many as requested; `tops` are the row's tops, if
    known.
    """

    def __init__(self, row: Row, tops: Row) -> None:
        self.row = row
        self._tops = tops
        self._found: Ids = np.empty(0, np.intp)

    def of(self, count: int) -> Ids:
        """Return ids of at least `count` tokens, descending; all other tokens are lower.

        The result has fewer ids if many logits are equal.
        """
        if self._found.size < count:
            ids = contenders(self.row, min(count, self.row.size), self._tops)
            if ids.size > 2 * count + FEW:
                logits = self.row[ids]
                ids = ids[logits > logits.min()]
            self._found = ids[np.argsort(-self.row[ids])]
        return self._found


def highest_mask(row: Row, count: int) -> Mask:
    """Return a mask of the `count` highest logits, for more tokens than can be sorted."""
    bound = _bound_of(row, count)
    passing: Mask = row >= bound
    num_surplus = int(np.count_nonzero(passing)) - count
    if num_surplus:
        passing[np.flatnonzero(row == bound)[-num_surplus:]] = False
    return passing


def _bound_of(row: Row, count: int) -> np.float32:
    """Return the lowest of the `count` highest logits.

    A sample gives two logits that nearly always enclose the result. Only the logits between these
    two are partitioned, which takes a millisecond for a long row.
    """
    some = np.sort(sample_of(row))
    expected = count * some.size / row.size
    spread = CAUTION * math.sqrt(expected) + 1
    low, high = (
        some[min(max(int(some.size - place), 0), some.size - 1)]
        for place in (expected + spread, expected - spread)
    )
    near = ((row >= low) & (row <= high)).nonzero()[0]
    rank = count - int(np.count_nonzero(row > high))
    if not 0 < rank <= near.size:
        return np.float32(np.partition(row, -count)[-count])
    return np.float32(np.partition(row[near], -rank)[-rank])


def sample_of(row: Row) -> Row:
    """Return about a thousand logits, evenly spaced over the whole row."""
    return row[:: max(1, row.size // _SAMPLE)]


def tops_of(row: Row) -> Row:
    """Return the highest logit of each column of `row` as a table; NaN if the column has a NaN.

    The last few logits, which do not fill a line, are columns of their own.
    """
    height, width = _shape(row.size)
    end = height * width
    tops = np.empty(width + row.size - end, np.float32)
    np.maximum.reduce(row[:end].reshape(height, width), axis=0, out=tops[:width])
    tops[width:] = row[end:]
    return tops


def reaching(row: Row, tops: Row, bound: np.float32) -> Ids:
    """Return the ids of the logits that reach `bound`; columns with lower tops are skipped."""
    height, width = _shape(row.size)
    columns = (tops >= bound).nonzero()[0]
    num_columns = int(columns.searchsorted(width))
    columns, left_over = columns[:num_columns], columns[num_columns:]
    if _SHARE * num_columns > width:
        return (row >= bound).nonzero()[0]
    size = height * width
    table = row[:size].reshape(height, width)
    places = (table.take(columns, axis=1).ravel() >= bound).nonzero()[0]
    lines, numbers = np.divmod(places, max(num_columns, 1))
    return np.concatenate((lines * width + columns[numbers], left_over + (size - width)))


def folded(tops: Row, count: int) -> Row:
    """Return tops for a table with at least `count` columns, fewer than `tops` has."""
    height = tops.size // count
    if height < 2:
        return tops
    width = tops.size // height
    some: Row = np.maximum.reduce(tops[: height * width].reshape(height, width), axis=0)
    return some


def _shape(size: int) -> tuple[int, int]:
    """Return lines and columns of the table."""
    height = max(1, size // WIDTH)
    return height, size // height


def contenders(row: Row, count: int, tops: Row | None) -> Ids:
    """Return the ids of all logits that reach a bound; at least `count` do, and not many more.

    The bound is the lowest of the highest logits of `count` columns, so at least `count` logits
    reach it.
    """
    tops = tops_of(row) if tops is None else tops
    if count > tops.size:
        bound = np.partition(row, -count)[-count]
        return (row >= bound).nonzero()[0] if bound > -np.inf else _allowed(row, count)
    some = folded(tops, max(_SPARSE * count, _LEAST_FOLDED))
    bound = np.partition(some, -count)[-count]
    return reaching(row, tops, bound) if bound > -np.inf else _allowed(row, count)


def _allowed(row: Row, count: int) -> Ids:
    """Return the ids that are not ruled out, filled up to `count` ids.

    If a constraint rules out nearly the whole vocabulary, the bound excludes nothing.
    """
    allowed = np.flatnonzero(row > -np.inf)
    missing = count - allowed.size
    if missing <= 0:
        return allowed
    # Among the first `count` so many are ruled out at least.
    return np.concatenate((allowed, np.flatnonzero(row[:count] == -np.inf)[:missing]))
