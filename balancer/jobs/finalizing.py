"""Puts the results of a batch's chunks together into its two files, in the order of its lines."""

from ..store.job_records import ChunkResults, SavedFile
from ..store.jobs import JobStore
from .batches import Batches
from .blobs.port import Blobs, BlobWriter
from .blobs.threads import on_thread
from .core.batch import Batch
from .files import PIECE, blob_of
from .spool import blob_name

CHUNKS_AT_ONCE = 200
RESULTS_KEPT = 30 * 86_400.0
"""Seconds after which result files are deleted, unless the batch says otherwise."""


async def finalize(
    batch: Batch, store: JobStore, blobs: Blobs, batches: Batches, now: float
) -> Batch:
    """The batch as it has ended. Done again after a kill, it comes to the same.

    Raises `StoreAway` and `BlobsAway`.
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
    """One of a batch's two files; it blocks."""

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
                self._copy(blob_name(chunk.key, is_error=self._is_error), size)

    def commit(self) -> None:
        if self._writer is not None:
            self._writer.commit()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()

    def saved(self, now: float) -> SavedFile | None:
        """Its row; none where there is nothing in it."""
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
