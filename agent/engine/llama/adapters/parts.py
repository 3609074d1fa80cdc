"""An adapter's file cut into small ones, each of which llama.cpp loads in a moment.

llama.cpp loads a file in one go and lists the adapter with its model at the end, while no step may
run. For a usual adapter that takes longer than a stream may wait (rank 16 of an 8B model in 32-bit
floats, 168 MiB: half a second and more). What an adapter adds to a weight depends on the two
tensors of that weight only. So adapters that have some of the weights each, all applied at once,
compute what one with all of them does.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file that is not laid out
like that is not cut: llama.cpp says what is wrong with it.
"""

import struct
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

PART_BYTES = 16 * 2**20
"""What llama.cpp reads and copies within some hundredths of a second."""

MOST_HEADER = 8 * 2**20

_HEAD = struct.Struct("<4sIQQ")
_VERSIONS = (2, 3)
_TEXT, _LIST = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = 32
_COPIED = 2**20  # bytes at once
_ALIGNMENT_KEY = b"general.alignment"
_ENDS = (b".lora_a", b".lora_b")


class _UncutError(Exception):
    """The file is laid out in a way that is not known here."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """`facts` are its name, shape and type as the file has them; its data lie there."""

    name: bytes
    facts: bytes
    start: int
    stop: int

    @property
    def weight(self) -> bytes:
        """The name of the weight that it adds to."""
        return next((self.name.removesuffix(end) for end in _ENDS if self.name.endswith(end)), b"")

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class _Layout:
    """`metadata` are those entries, as the file has them; `tensors` are in their data's order."""

    version: int
    num_entries: int
    metadata: bytes
    alignment: int
    tensors: tuple[_Tensor, ...]


def parts_of(path: Path, most: int = PART_BYTES) -> Generator[Path]:
    """The file at `path`, if it has `most` bytes or cannot be cut; else one file after the other.

    Each is gone once the next is asked for. One is larger than `most` only if the two tensors of a
    weight are. Raises `OSError`.
    """
    size = path.stat().st_size
    if size <= most:
        yield path
        return
    with path.open("rb") as file:
        try:
            layout = _layout(file.read(MOST_HEADER), size)
        except (_UncutError, struct.error):
            yield path
            return
        for tensors in _shared_out(layout.tensors, most):
            with tempfile.NamedTemporaryFile(prefix="arriero-", suffix=".gguf") as part:
                _write(part, file, layout, tensors)
                part.flush()
                yield Path(part.name)


def _shared_out(tensors: Sequence[_Tensor], most: int) -> Iterator[list[_Tensor]]:
    """`tensors` in parts; those of a weight stay together, and all stay in their order."""
    weights: dict[bytes, list[_Tensor]] = {}
    for each in tensors:
        weights.setdefault(each.weight, []).append(each)
    part: list[_Tensor] = []
    for group in weights.values():
        if part and sum(each.size for each in (*part, *group)) > most:
            yield sorted(part, key=lambda each: each.start)
            part = []
        part += group
    yield sorted(part, key=lambda each: each.start)


def _write(part: IO[bytes], file: IO[bytes], layout: _Layout, tensors: Sequence[_Tensor]) -> None:
    part.write(_HEAD.pack(b"GGUF", layout.version, len(tensors), layout.num_entries))
    part.write(layout.metadata)
    offset = 0
    for each in tensors:
        part.write(each.facts + struct.pack("<Q", offset))
        offset += _aligned(each.size, layout.alignment)
    for each in tensors:
        part.write(bytes(-part.tell() % layout.alignment))
        file.seek(each.start)
        _copy(file, part, each.size)


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size and (piece := source.read(min(size, _COPIED))):
        target.write(piece)
        size -= len(piece)


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


# ---- the header


def _layout(header: bytes, size: int) -> _Layout:
    """The layout of a file with `size` bytes. Raises `_UncutError` or `struct.error`."""
    magic, version, num_tensors, num_entries = _HEAD.unpack_from(header)
    if magic != b"GGUF" or version not in _VERSIONS:
        raise _UncutError
    walk = _Walk(header, _HEAD.size)
    alignment = _ALIGNMENT
    for _ in range(num_entries):
        key = walk.text()
        kind = walk.number("<I")
        if key == _ALIGNMENT_KEY and kind == 4:
            alignment = struct.unpack_from("<I", header, walk.place)[0]
        walk.skip(kind)
    metadata = header[_HEAD.size : walk.place]
    listed = [_listed(walk) for _ in range(num_tensors)]
    if not 0 < alignment <= 2**16 or not listed:
        raise _UncutError
    tensors = _placed(listed, walk.place, alignment, size)
    return _Layout(version, num_entries, metadata, alignment, tensors)


def _listed(walk: "_Walk") -> _Tensor:
    """A tensor whose `start` is counted from where the first one's data begin."""
    first = walk.place
    name = walk.text()
    num_dimensions = walk.number("<I")
    walk.move(8 * num_dimensions + 4)  # the shape and the type
    facts = walk.data[first : walk.place]
    return _Tensor(name, facts, walk.number("<Q"), 0)


def _placed(listed: list[_Tensor], end: int, alignment: int, size: int) -> tuple[_Tensor, ...]:
    """A tensor's data end where the next one's begin."""
    first = _aligned(end, alignment)
    listed = sorted(listed, key=lambda each: each.start)
    starts = [first + each.start for each in listed]
    stops = [*starts[1:], size]
    if any(start >= stop for start, stop in zip(starts, stops, strict=True)):
        raise _UncutError
    return tuple(
        replace(each, start=start, stop=stop)
        for each, start, stop in zip(listed, starts, stops, strict=True)
    )


class _Walk:
    """Goes through the header from `place` on. Raises `_UncutError` or `struct.error`."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data = data
        self.place = place

    def move(self, count: int) -> None:
        self.place += count
        if self.place > len(self.data):
            raise _UncutError

    def number(self, form: str) -> int:
        number: int = struct.unpack_from(form, self.data, self.place)[0]
        self.place += struct.calcsize(form)
        return number

    def text(self) -> bytes:
        length = self.number("<Q")
        self.move(length)
        return self.data[self.place - length : self.place]

    def skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind == _TEXT:
            self.text()
        elif kind == _LIST:
            self._skip_list()
        elif kind in _SIZES:
            self.move(_SIZES[kind])
        else:
            raise _UncutError

    def _skip_list(self) -> None:
        kind, length = self.number("<I"), self.number("<Q")
        if kind in _SIZES:
            self.move(_SIZES[kind] * length)
        elif kind == _TEXT:
            for _ in range(length):
                self.text()
        else:
            raise _UncutError  # lists of lists: no converter writes them
