"""Saved records of files, batches and chunks. Times are in seconds since 1970, in UTC."""

from dataclasses import dataclass
from typing import Literal

Order = Literal["asc", "desc"]
"""The order by time of creation. `desc` begins with the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """A file. Its bytes are in the folder or bucket of `--files`, under its id.

    An `owner` of `None` stands for all callers without a key.
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
    """A batch. `document` is JSON. Revisions begin at 1 and grow by 1.

    `is_open` means that the batch has not ended.
    """

    id: str
    owner: str | None
    created_at: float
    revision: int
    is_open: bool
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive lines of a batch's input: `num_bytes` bytes from `offset` on.

    `first_line` is the number of the first line, from 1, with empty lines counted. `num_lines` is
    the number of lines that are not empty.
    """

    number: int
    offset: int
    num_bytes: int
    first_line: int
    num_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResults:
    """The results of a chunk: the sizes of its outputs and errors, in two blobs named by `key`."""

    key: str
    num_output_bytes: int
    num_error_bytes: int
    num_completed: int
    num_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSums:
    """The progress of a batch, summed over its chunks with results."""

    num_chunks: int = 0
    num_done: int = 0
    num_completed: int = 0
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals:
    """Totals over all files."""

    num_files: int = 0
    num_bytes: int = 0
