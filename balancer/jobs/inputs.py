"""Checks the input of a batch in one pass: splits it into chunks, and finds errors.

An error in one line becomes the result of this line. The batch fails if no line can be read, if a
`custom_id` occurs twice, or if there are too many lines. The used memory does not depend on the
size of the input, because hashes of custom ids are written to a file.

All functions block. Call them on threads.
"""

import asyncio
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self

from ...shared.errors import NotFound
from ..store.job_records import Chunk
from .batch import MAX_FAULTS, Batch, Fault
from .blobs import blob_of, on_thread
from .lines import MAX_LINE, Line, parse_line
from .tools import Tools

CHUNK_LINES = 256
CHUNK_BYTES = 2**20
"""A chunk ends with the line that reaches `CHUNK_LINES` lines or this number of bytes."""

MAX_LINES = 10_000_000
CHUNKS_AT_ONCE = 200
LINES_AT_ONCE = 64
BREATH = 0.0005
"""The pause in seconds after `LINES_AT_ONCE` lines, so that other threads can run."""


@dataclass(slots=True)
class Index:
    """The result of a check. If there are `faults`, the batch fails."""

    num_lines: int = 0
    faults: list[Fault] = field(default_factory=list)


def index(
    file: BinaryIO,
    endpoint: str,
    scratch: Path,
    found: Callable[[list[Chunk]], None],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Index:
    """Check the input in `file`. `found` is called with a few hundred chunks at a time.

    `scratch` is a folder for temporary files.
    """
    with CustomIds(scratch) as ids:
        looker = _Looker(endpoint, ids, pause)
        chunks = _chunks(file, looker)
        while some := list(islice(chunks, CHUNKS_AT_ONCE)):
            found(some)
        return Index(looker.num_lines, looker.faults())


def read_chunk(file: BinaryIO, chunk: Chunk, endpoint: str) -> list[Line]:
    """Return the lines of a chunk. `file` must be at the chunk's offset."""
    lines = []
    num_bytes = 0
    for number, (size, text) in enumerate(_raw_lines(file), start=chunk.first_line):
        if text:
            lines.append(parse_line(number, text, endpoint))
        num_bytes += size
        if num_bytes >= chunk.num_bytes:
            break
    return lines


NUM_PARTS = 64

_PAIR = struct.Struct("<QQ")


class CustomIds:
    """Finds custom ids that occur twice, with a constant amount of memory.

    Hashes of 64 bits are written to files by their lowest bits, and each file is checked alone.
    Among ten million different ids, two have the same hash with a probability of 1 in 300,000.

    In the context, call `add` for all ids and then `repeated`. The end of the context deletes
    `folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = ExitStack()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        paths = [self._folder / str(part) for part in range(NUM_PARTS)]
        self._parts = [self._files.enter_context(path.open("wb")) for path in paths]
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, custom_id: str, line: int) -> None:
        """Add the custom id of a line."""
        digest = int.from_bytes(blake2b(custom_id.encode(), digest_size=8).digest(), "little")
        self._parts[digest % NUM_PARTS].write(_PAIR.pack(digest, line))

    def repeated(self, most: int) -> list[int]:
        """Return at most `most` lines whose custom id an earlier line has, in order."""
        self._files.close()
        found: list[int] = []
        for part in range(NUM_PARTS):
            seen: set[int] = set()
            with (self._folder / str(part)).open("rb") as file:
                while block := file.read(_PAIR.size * 4096):
                    for digest, line in _PAIR.iter_unpack(block):
                        if digest in seen and len(found) < most * NUM_PARTS:
                            found.append(line)
                        seen.add(digest)
        return sorted(found)[:most]


class _Looker:
    """Checks the lines of an input, each once."""

    def __init__(self, endpoint: str, ids: CustomIds, pause: Callable[[float], None]) -> None:
        self.num_lines = 0
        self._endpoint = endpoint
        self._ids = ids
        self._pause = pause
        self._problems: list[Fault] = []
        self._num_bad = 0

    @property
    def is_full(self) -> bool:
        return self.num_lines > MAX_LINES

    def look(self, number: int, text: bytes) -> None:
        self.num_lines += 1
        line = parse_line(number, text, self._endpoint)
        if line.custom_id is not None:
            self._ids.add(line.custom_id, number)
        if line.problem is not None:
            self._num_bad += 1
            if len(self._problems) < MAX_FAULTS:
                problem = line.problem
                self._problems.append(
                    Fault(code=problem.code, message=problem.message, line=number)
                )
        if self.num_lines % LINES_AT_ONCE == 0:
            self._pause(BREATH)

    def faults(self) -> list[Fault]:
        if self.num_lines == 0:
            return [Fault(code="empty_file", message="the input has no lines")]
        if self.is_full:
            return [
                Fault(code="too_many_lines", message=f"a batch may have at most {MAX_LINES} lines")
            ]
        if self._num_bad == self.num_lines:
            return self._problems
        message = "`custom_id`: an earlier line has the same `custom_id`"
        return [
            Fault(code="duplicate_custom_id", message=message, line=line)
            for line in self._ids.repeated(MAX_FAULTS)
        ]


def _chunks(file: BinaryIO, looker: _Looker) -> Iterator[Chunk]:
    offset = start = 0
    first = 1
    number = num_chunks = num_before = 0
    for number, (size, text) in enumerate(_raw_lines(file), start=1):
        if text:
            looker.look(number, text)
        if looker.is_full:
            return
        offset += size
        num_lines = looker.num_lines - num_before
        if num_lines == CHUNK_LINES or (num_lines and offset - start >= CHUNK_BYTES):
            yield _chunk(num_chunks, start, offset, first, num_lines)
            num_chunks, num_before, start, first = (
                num_chunks + 1,
                looker.num_lines,
                offset,
                number + 1,
            )
    if looker.num_lines > num_before:
        yield _chunk(num_chunks, start, offset, first, looker.num_lines - num_before)


def _chunk(number: int, start: int, end: int, first: int, num_lines: int) -> Chunk:
    return Chunk(
        number=number,
        offset=start,
        num_bytes=end - start,
        first_line=first,
        num_lines=num_lines,
    )


def _raw_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the length of each line with its end, and its text.

    The text of a line that is too long is cut.
    """
    while text := file.readline(MAX_LINE + 2):
        size = len(text)
        rest = text
        while not rest.endswith(b"\n") and (rest := file.readline(MAX_LINE)):
            size += len(rest)
        yield size, text.strip()


class BatchStopped(Exception):
    """The batch was stopped before the check of its input was complete."""


async def check_input(batch: Batch, tools: Tools, is_checking: Callable[[], bool]) -> Index:
    """Check the input of a batch, and delete what an earlier check left behind.

    If `is_checking` returns false, the check soon raises `BatchStopped`. Also raises `StoreAway`
    and `BlobsAway`.
    """
    loop = asyncio.get_running_loop()

    def found(chunks: list[Chunk]) -> None:
        if not is_checking():
            raise BatchStopped
        adding = tools.store.add_chunks(batch.id, chunks)
        asyncio.run_coroutine_threadsafe(adding, loop).result()

    def read() -> Index:
        with tools.blobs.open(blob_of(batch.input_file)) as file:
            return index(file, batch.endpoint, tools.scratch / f"{batch.id}.ids", found)

    async with tools.checking:
        await tools.store.forget_chunks(batch.id)
        try:
            await tools.files.find(batch.input_file, batch.caller.owner)
        except NotFound:
            return Index(
                faults=[Fault(code="file_not_found", message=("the input file was deleted"))]
            )
        return await on_thread(read)
