"""Cuts an adapter's file into small files, each of which llama.cpp loads quickly.

llama.cpp loads a file in one go. At the end it lists the adapter with its model, and no step may
run during that time. For a usual adapter that takes longer than a stream may wait (rank 16 of an
8B model in 32-bit floats, 168 MiB: half a second and more). An adapter's change of a weight
depends only on the two tensors of that weight. So several adapters that each have some of the
weights, applied together, compute the same as one adapter with all weights.

A file that is not a GGUF is not cut: llama.cpp reports what is wrong with it.
"""

import struct
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ....gguf.header import MAGIC, GgufHeader, HeaderError, read_header

PART_BYTES = 16 * 2**20
"""Bytes that llama.cpp reads and copies within a few hundredths of a second."""

_HEAD = struct.Struct("<4sIQQ")
_OFFSET = struct.Struct("<Q")
_COPIED = 2**20  # bytes at once
_ENDS = (".lora_a", ".lora_b")


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of an adapter's file.

    `facts` has the name, shape and type as bytes of the file. The data are from `start` to `stop`.
    """

    name: str
    facts: bytes
    start: int
    stop: int

    @property
    def weight(self) -> str:
        """The name of the weight that the tensor changes."""
        return next((self.name.removesuffix(end) for end in _ENDS if self.name.endswith(end)), "")

    @property
    def size(self) -> int:
        """The bytes of its data."""
        return self.stop - self.start


def parts_of(path: Path, most: int = PART_BYTES) -> Generator[Path]:
    """Yield the file at `path` if it is small or cannot be cut; otherwise one part after another.

    Each part is deleted when the next part is requested. A part exceeds `most` bytes only if the
    two tensors of one weight do. Raises `OSError`.
    """
    size = path.stat().st_size
    if size <= most:
        yield path
        return
    with path.open("rb") as file:
        try:
            header = read_header(file)
        except HeaderError:
            yield path
            return
        file.seek(0)
        start = file.read(header.data_offset)
        tensors = _tensors(header, start, size)
        if not tensors or not all(each.start < each.stop for each in tensors):
            yield path
            return
        for some in _shared_out(tensors, most):
            with tempfile.NamedTemporaryFile(prefix="arriero-", suffix=".gguf") as part:
                _write(part, file, header, start, some)
                part.flush()
                yield Path(part.name)


def _shared_out(tensors: Sequence[_Tensor], most: int) -> Iterator[list[_Tensor]]:
    """Yield `tensors` in groups; the tensors of a weight stay together, and all stay in order."""
    weights: dict[str, list[_Tensor]] = {}
    for each in tensors:
        weights.setdefault(each.weight, []).append(each)
    part: list[_Tensor] = []
    for group in weights.values():
        if part and sum(each.size for each in (*part, *group)) > most:
            yield sorted(part, key=lambda each: each.start)
            part = []
        part += group
    yield sorted(part, key=lambda each: each.start)


def _tensors(header: GgufHeader, start: bytes, size: int) -> list[_Tensor]:
    """Return the tensors in the order of their data.

    The file has `size` bytes and begins with `start`.
    """
    listed = sorted(header.tensors, key=lambda each: each.offset)
    starts = [header.data_offset + each.offset for each in listed]
    return [
        _Tensor(each.name, start[each.listed : each.listed_stop - _OFFSET.size], begins, ends)
        for each, begins, ends in zip(listed, starts, [*starts[1:], size], strict=False)
    ]


def _write(
    part: IO[bytes], file: IO[bytes], header: GgufHeader, start: bytes, tensors: Sequence[_Tensor]
) -> None:
    part.write(_HEAD.pack(MAGIC, header.version, len(tensors), header.num_entries))
    part.write(start[_HEAD.size : header.entries_stop])
    offset = 0
    for each in tensors:
        part.write(each.facts + _OFFSET.pack(offset))
        offset += each.size + -each.size % header.alignment
    for each in tensors:
        part.write(bytes(-part.tell() % header.alignment))
        file.seek(each.start)
        _copy(file, part, each.size)


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size and (piece := source.read(min(size, _COPIED))):
        target.write(piece)
        size -= len(piece)
