"""llama.cpp's format of a sequence's state: cut into pieces of cells, and joined again.

llama.cpp writes and reads all cells of a sequence at once. A piece has some of the cells, in the
format for one cache for all sequences. So pieces work with both layouts.

A state has a head (magic number, sequence), the number of streams, and for each stream its number
of cells. If that number is not 0, the position of each cell follows, and for each layer a head and
the rows. Keys have one row per cell. Values have one row per cell as well, or one row per element
with the cells next to each other. Integers have 4 bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...prompt_store.stored_prompt import State

Bytes = NDArray[np.uint8]

_HEAD = 8
_INT = 4
_CELL_BYTES = (12, 24)
"""Bytes per cell: position, number of sequences, sequence; some models store more."""

_ROWS = struct.Struct("<iQ")
_TRANSPOSED = struct.Struct("<iII")


class UnknownStateError(ValueError):
    """The state does not have the format described here."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive bytes: `head`, then `cells`, an array of (rows, cells, bytes per cell)."""

    head: Bytes
    cells: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CellStates:
    """A parsed state: the first part has the positions, the others the layers."""

    head: Bytes
    parts: tuple[_Part, ...]

    @property
    def positions(self) -> list[int]:
        """The position of each cell."""
        cells = np.ascontiguousarray(self.parts[0].cells[0, :, :_INT])
        return [int(each) for each in cells.view("<i4").ravel()]


def num_cells(states: CellStates) -> int:
    """Return the number of cells."""
    return int(states.parts[0].cells.shape[1])


def parse(state: State) -> CellStates:
    """Parse `state`. Raises `UnknownStateError`."""
    data = np.frombuffer(state, np.uint8)
    section = _section(data)
    for cell_bytes in _CELL_BYTES:
        try:
            return CellStates(data[:_HEAD], tuple(_parts(section, cell_bytes)))
        except (struct.error, UnknownStateError):
            continue
    raise UnknownStateError("the cells and layers of this state have an unknown form")


def cut(states: CellStates, start: int, count: int) -> State:
    """Return `count` cells from `start` on as a state of their own."""
    pieces = [states.head, _ints(1), _ints(count)]
    for part in states.parts:
        pieces += [part.head, part.cells[:, start : start + count].ravel()]
    return np.concatenate(pieces).data


def join(states: Sequence[State], length: int, num_streams: int) -> State:
    """Join consecutive `states`; return the first `length` cells as a state for `num_streams`.

    Raises `UnknownStateError` if the states are not consecutive, or belong to different models.
    """
    parsed = [parse(state) for state in states]
    positions = [position for one in parsed for position in one.positions]
    if positions[:length] != list(range(length)):
        raise UnknownStateError("the pieces of this state do not follow each other")
    pieces = [parsed[0].head, _ints(num_streams), _ints(length)]
    for parts in zip(*(one.parts for one in parsed), strict=True):
        if any(not np.array_equal(part.head, parts[0].head) for part in parts):
            raise UnknownStateError("the pieces of this state are of different models")
        cells = np.concatenate([part.cells for part in parts], axis=1)
        pieces += [parts[0].head, cells[:, :length].ravel()]
    return np.concatenate([*pieces, np.zeros(_INT * (num_streams - 1), np.uint8)]).data


def _section(data: Bytes) -> Bytes:
    """Return the part of the only stream with cells, from its number of cells on."""
    try:
        (num_streams,) = struct.unpack_from("<I", data.data, _HEAD)
        start = _HEAD + _INT
        for number in range(num_streams):
            (count,) = struct.unpack_from("<I", data.data, start)
            if count:
                return data[start : data.size - _INT * (num_streams - 1 - number)]
            start += _INT
    except struct.error:
        pass
    raise UnknownStateError("this state has no cells")


def _parts(section: Bytes, cell_bytes: int) -> Iterator[_Part]:
    (count,) = struct.unpack_from("<I", section.data, 0)
    rest = section[_INT:]
    end = count * cell_bytes
    transposed, num_layers = struct.unpack_from("<II", rest.data, end)
    if transposed > 1:
        raise UnknownStateError("the flag for transposed values is invalid")
    yield _Part(section[:0], _cells(rest[:end], 1, count))
    rest = rest[end:]
    head = rest[: 2 * _INT]
    rest = rest[2 * _INT :]
    for number in range(num_layers):
        part, rest = _keys(rest, count)
        yield _Part(np.concatenate([head, part.head]) if not number else part.head, part.cells)
    while rest.size:
        part, rest = _values(rest, count) if transposed else _keys(rest, count)
        yield part


def _keys(data: Bytes, count: int) -> tuple[_Part, Bytes]:
    """Return the next layer with one row per cell, and the data after it."""
    _, row = _ROWS.unpack_from(data.data)
    return _take(data, _ROWS.size, rows=1, count=count, width=row)


def _values(data: Bytes, count: int) -> tuple[_Part, Bytes]:
    """Return the next layer with one row per element, and the data after it."""
    _, width, rows = _TRANSPOSED.unpack_from(data.data)
    return _take(data, _TRANSPOSED.size, rows=rows, count=count, width=width)


def _take(data: Bytes, start: int, *, rows: int, count: int, width: int) -> tuple[_Part, Bytes]:
    end = start + rows * count * width
    if not width > 0 or end > data.size:
        raise UnknownStateError("a layer is longer than its state")
    return _Part(data[:start], _cells(data[start:end], rows, count)), data[end:]


def _cells(data: Bytes, rows: int, count: int) -> NDArray[np.uint8]:
    if data.size % (rows * count):
        raise UnknownStateError("rows of different lengths")
    return data.reshape(rows, count, -1)


def _ints(value: int) -> Bytes:
    return np.frombuffer(struct.pack("<I", value), np.uint8)
