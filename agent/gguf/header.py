"""Reads the header of a GGUF file: its metadata, and the shapes of its tensors.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file may contain anything,
so every count is bounded, and long texts and lists are skipped.
"""

import struct
from dataclasses import dataclass
from typing import Protocol

MAX_HEADER = 256 * 2**20
"""Maximum bytes of a header; vocabularies of 256,000 words with merges take about 20 MB."""

MAX_VALUE = 16 * 2**20
"""Maximum bytes of one text or list of numbers, since each is read at once."""

MAX_ENTRIES = 2**16
MAX_TENSORS = 2**18
MAX_ITEMS = 2**22
"""Maximum items of all lists together."""

MAX_TEXT = 2**16
MAX_KEPT_LIST = 1024
MAX_DEPTH = 4
MAX_DIMENSIONS = 8

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_TEXT, _LIST = 8, 9
_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_ALIGNMENT = 32

Value = int | float | bool | str | tuple[int | float | bool, ...]


class Readable(Protocol):
    """A binary file from which a header is read."""

    def read(self, count: int, /) -> bytes:
        """Return the next `count` bytes, or fewer at the end of the file."""
        ...


class HeaderError(Exception):
    """The file is not a readable GGUF; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The position of a tensor: `offset` counts bytes after `data_offset`.

    The file describes the tensor in the bytes from `listed` to `listed_stop`.
    """

    name: str
    offset: int
    listed: int
    listed_stop: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a file.

    `metadata` has numbers, short texts and short lists of numbers; `lengths` has the lengths of all
    lists. `num_parameters` counts the elements of all tensors. The `num_entries` metadata entries
    end at `entries_stop`. The tensors begin at `data_offset`, each at a multiple of `alignment`.
    Positions are in bytes.
    """

    version: int
    num_entries: int
    entries_stop: int
    alignment: int
    metadata: dict[str, Value]
    lengths: dict[str, int]
    num_tensors: int
    num_parameters: int
    data_offset: int
    tensors: tuple[TensorPlace, ...]

    def tensor_bytes(self, file_bytes: int) -> dict[str, int]:
        """Return the bytes of each tensor by name, in a file of `file_bytes` bytes.

        A tensor extends to the next one, so padding is included.
        """
        places = sorted(self.tensors, key=lambda each: each.offset)
        starts = [each.offset for each in places]
        ends = [*starts[1:], max(0, file_bytes - self.data_offset)]
        return {
            each.name: max(0, end - each.offset) for each, end in zip(places, ends, strict=False)
        }

    def number(self, key: str) -> int | None:
        """Return the integer under the architecture's `key` (`block_count`); `None` if missing."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def numbers(self, key: str, count: int) -> list[int] | None:
        """Return the integers under `key` for `count` layers; a single number applies to all."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple) and len(value) >= count:
            whole = [each for each in value[:count] if isinstance(each, int)]
            return whole if len(whole) == count else None
        single = self.number(key)
        return None if single is None else [single] * count

    @property
    def num_files(self) -> int:
        """The number of files of the model."""
        value = self.metadata.get("split.count", 1)
        return value if isinstance(value, int) else 1

    @property
    def architecture(self) -> str:
        """The architecture as the file names it: `llama`, `qwen3`, …; empty if missing."""
        value = self.metadata.get("general.architecture", "")
        return value if isinstance(value, str) else ""


def read_header(file: Readable) -> GgufHeader:
    """Read a header from the current position of `file`. Raises `HeaderError`."""
    return _Reader(file).header()


class _Reader:
    def __init__(self, file: Readable) -> None:
        self._file = file
        self._num_read = 0
        self._num_items = 0

    def header(self) -> GgufHeader:
        if self._bytes(len(MAGIC)) != MAGIC:
            raise HeaderError("it is not in GGUF format")
        version = int(self._number("<I"))
        if version not in _VERSIONS:
            raise HeaderError(f"it is in version {version} of the GGUF format, not 2 or 3")
        num_tensors = self._count(MAX_TENSORS, "tensors")
        num_entries = self._count(MAX_ENTRIES, "metadata entries")
        metadata: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(num_entries):
            key = self._text() or ""
            value, length = self._value(int(self._number("<I")), 0)
            if value is not None:
                metadata[key] = value
            if length is not None:
                lengths[key] = length
        entries_stop = self._num_read
        tensors = [self._tensor() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= MAX_TEXT:
            raise HeaderError("its `general.alignment` is not a valid size")
        return GgufHeader(
            version=version,
            num_entries=num_entries,
            entries_stop=entries_stop,
            alignment=alignment,
            metadata=metadata,
            lengths=lengths,
            num_tensors=num_tensors,
            num_parameters=sum(elements for elements, _ in tensors),
            data_offset=-(-self._num_read // alignment) * alignment,
            tensors=tuple(place for _, place in tensors),
        )

    def _value(self, kind: int, depth: int) -> tuple[Value | None, int | None]:
        """Return a value and the length of a list. The value is `None` if it is too long to
        keep.
        """
        if kind == _TEXT:
            return self._text(), None
        if kind == _LIST:
            return self._list(depth)
        return self._number(self._format(kind)), None

    def _list(self, depth: int) -> tuple[Value | None, int]:
        if depth == MAX_DEPTH:
            raise HeaderError("its lists are nested too deep")
        kind = int(self._number("<I"))
        length = self._count(MAX_ITEMS, "items")
        self._num_items += length
        if self._num_items > MAX_ITEMS:
            raise HeaderError(f"it has more than {MAX_ITEMS} items in lists")
        if kind in (_TEXT, _LIST):
            for _ in range(length):
                self._value(kind, depth + 1)
            return None, length
        form = self._format(kind)
        data = self._bytes(length * struct.calcsize(form))
        if length > MAX_KEPT_LIST:
            return None, length
        return struct.unpack(f"<{length}{form[1]}", data), length

    def _tensor(self) -> tuple[int, TensorPlace]:
        """Return the number of elements of the next tensor, and its position."""
        listed = self._num_read
        name = self._text() or ""
        num_dimensions = int(self._number("<I"))
        if num_dimensions > MAX_DIMENSIONS:
            raise HeaderError(f"a tensor has {num_dimensions} dimensions")
        elements = 1
        for _ in range(num_dimensions):
            elements *= int(self._number("<Q"))
        if elements >= 2**60:
            raise HeaderError("a tensor is impossibly large")
        self._bytes(4)  # its type
        offset = int(self._number("<Q"))
        return elements, TensorPlace(name, offset, listed, self._num_read)

    def _text(self) -> str | None:
        length = int(self._number("<Q"))
        data = self._bytes(length)
        return data.decode("utf-8", "replace") if length <= MAX_TEXT else None

    @staticmethod
    def _format(kind: int) -> str:
        if kind not in _NUMBERS:
            raise HeaderError(f"it has a value of the unknown type {kind}")
        return _NUMBERS[kind]

    def _count(self, most: int, what: str) -> int:
        count = int(self._number("<Q"))
        if count > most:
            raise HeaderError(f"it has {count} {what}, more than {most}")
        return count

    def _number(self, form: str) -> int | float | bool:
        number: int | float | bool = struct.unpack(form, self._bytes(struct.calcsize(form)))[0]
        return number

    def _bytes(self, count: int) -> bytes:
        self._num_read += count
        if count > MAX_VALUE:
            raise HeaderError(f"a value has {count} bytes, more than {MAX_VALUE}")
        if self._num_read > MAX_HEADER:
            raise HeaderError(f"its header has more than {MAX_HEADER} bytes")
        data = self._file.read(count)
        if len(data) < count:
            raise HeaderError("it ends within its header")
        return data
