"""Results of a chunk while it runs: each is in a local file as soon as it is there.

A record is a line: `O` or `E` for output or error, the number of the batch's line, and the result.
It is written in one piece, so after a kill only the last record can be torn, and is cut off. What
is lost with the whole machine is computed again.

All of it blocks: call it from threads.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..store.job_records import ChunkResults
from .blobs.local import told
from .blobs.port import Blobs


class Spool:
    """The chunks that one runner works at, in a folder of his own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "chunks"

    def open(self, batch: str, chunk: int) -> "ChunkSpool":
        """A chunk's results, with those that were there before a restart. Raises `BlobsAway`."""
        path = self._folder / batch / f"{chunk}"
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return ChunkSpool(path)

    def keep_only(self, batches: set[str]) -> None:
        """Delete what is left of other batches."""
        if self._folder.is_dir():
            for folder in self._folder.iterdir():
                if folder.name not in batches:
                    self.forget(folder.name)

    def forget(self, batch: str) -> None:
        """Delete what is left of a batch."""
        shutil.rmtree(self._folder / batch, ignore_errors=True)


class ChunkSpool:
    """One chunk's results so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_error: dict[int, bool] = {}
        """The lines that have results, and whether these are errors."""
        self._read_back()

    def add(self, number: int, result: bytes, *, is_error: bool) -> None:
        """The result of a line, which ends with a line break. Raises `BlobsAway`."""
        record = b"%b %d %b" % (b"E" if is_error else b"O", number, result)
        with told(self._path), self._path.open("ab", buffering=0) as file:
            end = file.tell()
            if file.write(record) != len(record):
                file.truncate(end)  # or the next record would be taken for its rest
                raise OSError("the disk is full")
        self.is_error[number] = is_error

    def store(self, blobs: Blobs, key: str) -> ChunkResults:
        """Write outputs and errors as blobs, in the order of their lines. Raises `BlobsAway`."""
        sizes = {is_error: self._write(blobs, key, is_error) for is_error in (False, True)}
        num_failed = sum(self.is_error.values())
        return ChunkResults(
            key=key,
            num_output_bytes=sizes[False],
            num_error_bytes=sizes[True],
            num_completed=len(self.is_error) - num_failed,
            num_failed=num_failed,
        )

    def delete(self) -> None:
        """It is stored elsewhere."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, blobs: Blobs, key: str, is_error: bool) -> int:
        wanted = {n for n, was_error in self.is_error.items() if was_error == is_error}
        if not wanted:
            return 0
        with self._path.open("rb") as file:
            places = {n: (at, size) for n, _, at, size in _records(file) if n in wanted}
            writer = blobs.create(blob_name(key, is_error=is_error))
            try:
                for number in sorted(places):
                    at, size = places[number]
                    file.seek(at)
                    writer.write(file.read(size))
                writer.commit()
            finally:
                writer.abort()
        return sum(size for _, size in places.values())

    def _read_back(self) -> None:
        end = 0
        with self._path.open("a+b") as file:
            file.seek(0)
            for number, was_error, at, size in _records(file):
                self.is_error[number] = was_error
                end = at + size
            file.truncate(end)


def blob_name(key: str, *, is_error: bool) -> str:
    """Where a chunk's outputs or errors lie."""
    return f"{key}.{'errors' if is_error else 'outputs'}"


def _records(file: BinaryIO) -> Iterator[tuple[int, bool, int, int]]:
    """Number, whether it is an error, place and size of each whole result."""
    at = 0
    for record in file:
        if not record.endswith(b"\n"):
            return
        kind, number, result = record.split(b" ", 2)
        yield int(number), kind == b"E", at + len(record) - len(result), len(result)
        at += len(record)
