"""Reads an input once: cuts it into chunks, and looks for what makes a batch impossible.

What is wrong with one line is that line's error later. A batch fails if no line of it can be read,
if a `custom_id` is there twice, or if there are too many lines. Memory is the same for every size:
the digests of custom ids go to a file.

All of it blocks: call it from threads.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ...store.job_records import Chunk
from ..core.batch import MAX_FAULTS, Fault
from ..core.lines import MAX_LINE, Line, parse_line
from .custom_ids import CustomIds

CHUNK_LINES = 256
CHUNK_BYTES = 2**20
"""A chunk has at most so many lines, and ends behind so many bytes."""

MAX_LINES = 10_000_000
CHUNKS_AT_ONCE = 200
LINES_AT_ONCE = 64
BREATH = 0.0005
"""Seconds without work after `LINES_AT_ONCE` lines, for whoever waits for the interpreter."""


@dataclass(slots=True)
class Index:
    """What was found. With `faults` the batch fails."""

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
    """`found` gets the chunks, a few hundred at a time. `scratch` is a folder to use."""
    with CustomIds(scratch) as ids:
        looker = _Looker(endpoint, ids, pause)
        chunks = _chunks(file, looker)
        while some := list(islice(chunks, CHUNKS_AT_ONCE)):
            found(some)
        return Index(looker.num_lines, looker.faults())


def read_chunk(file: BinaryIO, chunk: Chunk, endpoint: str) -> list[Line]:
    """The lines of a chunk; `file` stands at its offset."""
    lines = []
    num_bytes = 0
    for number, (size, text) in enumerate(_raw_lines(file), start=chunk.first_line):
        if text:
            lines.append(parse_line(number, text, endpoint))
        num_bytes += size
        if num_bytes >= chunk.num_bytes:
            break
    return lines


class _Looker:
    """Looks at each line once."""

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
                Fault(code="too_many_lines", message=f"a batch may have {MAX_LINES} lines at most")
            ]
        if self._num_bad == self.num_lines:
            return self._problems
        message = "`custom_id`: an earlier line has the same one"
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
    """Bytes of each line with its end, and its text; of one that is too long, only its begin."""
    while text := file.readline(MAX_LINE + 2):
        size = len(text)
        rest = text
        while not rest.endswith(b"\n") and (rest := file.readline(MAX_LINE)):
            size += len(rest)
        yield size, text.strip()
