"""Saved records of files, batches and chunks. Times are seconds since 1970, in UTC."""

from dataclasses import dataclass
from typing import Literal

Order = Literal["asc", "desc"]
"""By time of creation; `desc` has the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """A file; its bytes are in the folder or bucket of `--files`, under its id.

    `owner` owns it; `None` stands for everybody without a key.
    """

    id: str
    owner: str | None
    name: str
    purpose: str
    num_bytes: int
    created_at: float
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBatch:
    """A batch; `document` is JSON. Revisions begin at 1 and grow by 1. `is_open`: not ended."""

    id: str
    owner: str | None
    created_at: float
    revision: int
    is_open: bool
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive lines of a batch's input: `num_bytes` bytes from `offset` on.

    `first_line` is the number of its first line, from 1; empty lines are counted. `num_lines` is
    the number of lines that are not empty.
    """

    number: int
    offset: int
    num_bytes: int
    first_line: int
    num_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResults:
    """A chunk's results: the bytes of its outputs and errors, in two blobs named by `key`."""

    key: str
    num_output_bytes: int
    num_error_bytes: int
    num_completed: int
    num_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSums:
    """A batch's progress, summed over its chunks with results."""

    num_chunks: int = 0
    num_done: int = 0
    num_completed: int = 0
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """Totals over all files."""

    num_files: int = 0
    num_bytes: int = 0
