"""Results of lines: each goes to a local file at once, and at the end to the batch's two files.

The local file of a chunk is its spool. A record is one line of text: `O` for output or `E` for
error, the number of the batch's line, and the result. Each record is written in one piece. After a
kill only the last record can be incomplete, and is cut off. If the whole machine is lost, the
results are computed again.

All methods block, so call them from threads.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..store.job_records import ChunkResults, SavedFile
from ..store.jobs import JobStore
from .batch import Batch
from .batches import Batches
from .blobs import Blobs, BlobWriter, blob_of, on_thread, raising_away, results_blob
from .files import PIECE


class Spool:
    """The results of unfinished chunks, in a folder that all balancers of a machine share.

    A balancer that takes over a batch therefore continues with the existing results.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "chunks"

    def open(self, batch: str, chunk: int) -> "ChunkSpool":
        """Return a chunk's results, including results from before a restart.

        Raises `BlobsAway`.
        """
        path = self._folder / batch / f"{chunk}"
        with raising_away(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return ChunkSpool(path)

    def batches(self) -> set[str]:
        """Return the batches with results in the spool."""
        return {each.name for each in self._folder.iterdir()} if self._folder.is_dir() else set()

    def forget(self, batch: str) -> None:
        """Delete the results of a batch."""
        shutil.rmtree(self._folder / batch, ignore_errors=True)


class ChunkSpool:
    """The results of one chunk so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_error: dict[int, bool] = {}
        """The lines with results, and whether each result is an error."""
        self._read_back()

    def add(self, number: int, result: bytes, *, is_error: bool) -> None:
        """Add the result of a line. `result` must end with a line break. Raises `BlobsAway`."""
        record = b"%b %d %b" % (b"E" if is_error else b"O", number, result)
        with raising_away(self._path), self._path.open("ab", buffering=0) as file:
            end = file.tell()
            if file.write(record) != len(record):
                file.truncate(end)  # or the next record would be taken for its rest
                raise OSError("the disk is full")
        self.is_error[number] = is_error

    def store(self, blobs: Blobs, key: str) -> ChunkResults:
        """Write outputs and errors as blobs, in the order of lines. Raises `BlobsAway`."""
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
        """Delete the local results after they were stored as blobs."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, blobs: Blobs, key: str, is_error: bool) -> int:
        numbers = {n for n, was_error in self.is_error.items() if was_error == is_error}
        if not numbers:
            return 0
        with self._path.open("rb") as file:
            places = {
                n: (at, size)
                for n, was_error, at, size in _records(file)
                if n in numbers and was_error == is_error
            }
            writer = blobs.create(results_blob(key, is_error=is_error))
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


def _records(file: BinaryIO) -> Iterator[tuple[int, bool, int, int]]:
    """Yield number, whether an error, offset and size of each complete result."""
    at = 0
    for record in file:
        if not record.endswith(b"\n"):
            return
        kind, number, result = record.split(b" ", 2)
        yield int(number), kind == b"E", at + len(record) - len(result), len(result)
        at += len(record)


CHUNKS_AT_ONCE = 200
RESULTS_KEPT = 30 * 86_400.0
"""Seconds after which result files are deleted, unless the batch sets another time."""


async def finalize(
    batch: Batch, store: JobStore, blobs: Blobs, batches: Batches, now: float
) -> Batch:
    """Write the batch's files, and return the ended batch. Raises `StoreAway` and `BlobsAway`.

    Calling the function again after a kill gives the same result.
    """
    outputs = _ResultFile(batch, blobs, is_error=False)
    errors = _ResultFile(batch, blobs, is_error=True)
    num_completed = num_failed = 0
    try:
        after = -1
        while chunks := await store.done_chunks(batch.id, after=after, limit=CHUNKS_AT_ONCE):
            results = [each for _, each in chunks]
            await on_thread(outputs.append, results)
            await on_thread(errors.append, results)
            num_completed += sum(each.num_completed for each in results)
            num_failed += sum(each.num_failed for each in results)
            after = chunks[-1][0]
        for each in (outputs, errors):
            await on_thread(each.commit)
    finally:
        for each in (outputs, errors):
            await on_thread(each.abort)
    files = [file for each in (outputs, errors) if (file := each.saved(now)) is not None]

    def ended(current: Batch) -> Batch:
        return current.ended(
            now,
            num_completed=num_completed,
            num_failed=num_failed,
            output_file=outputs.id if outputs.num_bytes else None,
            error_file=errors.id if errors.num_bytes else None,
        )

    return await batches.change(batch.id, ended, files)


class _ResultFile:
    """One of the two result files of a batch. All methods block."""

    def __init__(self, batch: Batch, blobs: Blobs, *, is_error: bool) -> None:
        word = "errors" if is_error else "output"
        self.id = f"file-{batch.id.removeprefix('batch_')}-{word}"
        self.num_bytes = 0
        self._batch = batch
        self._blobs = blobs
        self._is_error = is_error
        self._writer: BlobWriter | None = None

    def append(self, chunks: list[ChunkResults]) -> None:
        for chunk in chunks:
            size = chunk.num_error_bytes if self._is_error else chunk.num_output_bytes
            if size:
                self._copy(results_blob(chunk.key, is_error=self._is_error), size)

    def commit(self) -> None:
        if self._writer is not None:
            self._writer.commit()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()

    def saved(self, now: float) -> SavedFile | None:
        """Return the file's row; `None` if the file is empty."""
        if not self.num_bytes:
            return None
        word = "errors" if self._is_error else "output"
        kept = self._batch.output_expires_after or RESULTS_KEPT
        return SavedFile(
            id=self.id,
            owner=self._batch.caller.owner,
            name=f"{self._batch.id}_{word}.jsonl",
            purpose="batch_output",
            num_bytes=self.num_bytes,
            created_at=now,
            expires_at=now + kept,
        )

    def _copy(self, name: str, size: int) -> None:
        if self._writer is None:
            self._writer = self._blobs.create(blob_of(self.id))
        with self._blobs.open(name) as file:
            left = size
            while left:
                piece = file.read(min(PIECE, left))
                if not piece:
                    raise RuntimeError(f"{name} lacks {left} bytes")
                self._writer.write(piece)
                left -= len(piece)
        self.num_bytes += size
