"""The files that clients upload and that batches create.

Callers share three limits fairly: the number of uploads at once, the number of files, and their
bytes. The store counts stored files for all balancers. Each balancer counts its own uploads.
"""

import logging
import time
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace

from ...shared.errors import NotFound, Overloaded, RequestTooLarge
from ..fleet.caller import Account, Caller
from ..fleet.shares import EVERYBODY, Amounts, Shares
from ..store.job_records import FileTotals, Order, SavedFile
from ..store.jobs import JobStore
from .blobs import Blobs, BlobWriter, blob_of, on_thread
from .files_place import FileLimits

MAX_UPLOADS = 16
"""The maximum number of uploads at once."""

MAX_FILES = 100_000
PIECE = 2**20
"""The bytes that a thread reads or writes in one call."""

EXPIRED_AT_ONCE = 100

RECOUNT_AFTER = 1.0
"""The seconds for which counts from the store are used before they are read again."""

RETRY_AFTER = 1.0
"""The seconds after which a client may try an upload again if there were too many uploads."""


class Files:
    """The files of a balancer. A caller cannot find files of other owners."""

    def __init__(
        self,
        store: JobStore,
        blobs: Blobs,
        limits: FileLimits,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self.limits = limits
        self.uploads: Shares[Account] = Shares(MAX_UPLOADS)
        self.bytes: Shares[str] = Shares(limits.max_total, everybody=EVERYBODY)
        self.counts: Shares[str] = Shares(MAX_FILES, everybody=EVERYBODY)
        self._coming_bytes: Amounts[str] = Amounts()
        self._coming: Amounts[str] = Amounts()
        """The bytes of files that are not in the store yet, by owner."""
        self._counted_at = float("-inf")

    @property
    def totals(self) -> FileTotals:
        """Return the number of files and their bytes, as last counted."""
        return FileTotals(
            num_files=self.counts.total - self._coming.total,
            num_bytes=self.bytes.total - self._coming_bytes.total,
        )

    async def start(self) -> None:
        """Count the files in the store."""
        found = await self._store.file_totals()
        self._counted_at = self._clock()
        counts = {owner or EVERYBODY: each.num_files for owner, each in found.items()}
        sizes = {owner or EVERYBODY: each.num_bytes for owner, each in found.items()}
        self.counts.recount(_sum(counts, self._coming))
        self.bytes.recount(_sum(sizes, self._coming_bytes))

    @asynccontextmanager
    async def upload(self, caller: Caller) -> AsyncIterator["Upload"]:
        """Return a context for an upload. The upload is deleted unless `Upload.keep` was called.

        Raises `Overloaded` and `RequestTooLarge`.
        """
        account, owner = caller.account, caller.owner or EVERYBODY
        if not self.uploads.claim(account, 1):
            raise Overloaded(
                f"{self.uploads.total} uploads already run, {self.uploads.held(account)} "
                f"of them from this caller; all callers share {MAX_UPLOADS}. Try again in "
                "a moment",
                retry_after=RETRY_AFTER,
            )
        try:
            if self._clock() - self._counted_at >= RECOUNT_AFTER:
                await self.start()
            if not self.counts.claim(owner, 1):
                raise RequestTooLarge(
                    f"{self.counts.total} files are already stored, "
                    f"{self.counts.held(owner)} of them from this caller; all callers "
                    f"share {MAX_FILES}. Delete some first"
                )
            self._coming.add(owner, 1)
            async with self._upload(caller.owner) as upload:
                yield upload
        finally:
            self.uploads.give_back(account, 1)

    @asynccontextmanager
    async def _upload(self, owner: str | None) -> AsyncIterator["Upload"]:
        id = new_file_id()
        upload = None
        try:
            writer = await on_thread(self._blobs.create, blob_of(id))
            try:
                yield (upload := Upload(self, id, writer, owner))
            finally:
                await on_thread(writer.abort)
        finally:
            is_kept = upload is not None and upload.is_kept
            self._came(owner or EVERYBODY, 0 if upload is None else upload.claimed, is_kept=is_kept)

    def claim_bytes(self, owner: str | None, num_bytes: int) -> bool:
        """Count `num_bytes` more of an upload. Returns whether the limits allow these bytes."""
        if not self.bytes.claim(owner or EVERYBODY, num_bytes):
            return False
        self._coming_bytes.add(owner or EVERYBODY, num_bytes)
        return True

    def _came(self, owner: str, num_bytes: int, *, is_kept: bool) -> None:
        """End the count of an upload, which was stored if `is_kept` and deleted otherwise."""
        self._coming.add(owner, -1)
        self._coming_bytes.add(owner, -num_bytes)
        if not is_kept:
            self.counts.give_back(owner, 1)
            self.bytes.give_back(owner, num_bytes)

    async def keep(self, file: SavedFile) -> None:
        """Add a file to the store after its bytes were stored."""
        await self._store.add_file(file)

    def added(self, *files: SavedFile) -> None:
        """Count files that were added to the store without an upload."""
        for file in files:
            self.counts.take(file.owner or EVERYBODY, 1)
            self.bytes.take(file.owner or EVERYBODY, file.num_bytes)

    async def find(self, id: str, owner: str | None, field: str | None = None) -> SavedFile:
        """Return the owner's file with the id `id`.

        Raises `NotFound`; the error names the request's `field` with the id.
        """
        file = await self._store.file(id)
        now = self._clock()
        is_over = file is None or (file.expires_at is not None and file.expires_at <= now)
        if file is None or is_over or file.owner != owner:
            raise NotFound(f"no file has the id {id[:100]!r}", field=field)
        return file

    async def has(self, id: str, owner: str | None) -> bool:
        """Return whether the owner has a file with the id `id`, even if the file has expired."""
        file = await self._store.file(id)
        return file is not None and file.owner == owner

    async def page(
        self, owner: str | None, *, purpose: str | None, after: str | None, limit: int, order: Order
    ) -> list[SavedFile]:
        """Return a page of the owner's files; see `JobStore.files`."""
        return await self._store.files(
            owner, purpose=purpose, after=after, limit=limit, order=order
        )

    async def delete(self, id: str, owner: str | None) -> None:
        """Delete the owner's file with the id `id`. Raises `NotFound`."""
        await self._delete(await self.find(id, owner))

    async def delete_expired(self) -> int:
        """Delete some expired files, and return their number."""
        over = await self._store.expired_files(self._clock(), EXPIRED_AT_ONCE)
        for file in over:
            await self._delete(file)
        return len(over)

    async def read(self, file: SavedFile, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file from `start` to before `stop`, in pieces.

        Raises `BlobsAway`, or `ConnectionError` if the file is shorter than `stop`.
        """
        with await on_thread(self._opened, file.id, start) as content:
            while start < stop:
                piece = await on_thread(content.read, min(PIECE, stop - start))
                if not piece:
                    raise ConnectionError(f"the file {file.id} is shorter than its upload")
                start += len(piece)
                yield piece

    def _opened(self, id: str, offset: int) -> "_Opened":
        return _Opened(self._blobs, blob_of(id), offset)

    async def _delete(self, file: SavedFile) -> None:
        # First the row: bytes without a row are only lost room.
        if await self._store.forget_file(file.id):
            owner = file.owner or EVERYBODY
            # The last count may have been without it.
            num = self.counts.held(owner) - self._coming[owner]
            size = self.bytes.held(owner) - self._coming_bytes[owner]
            self.counts.give_back(owner, max(0, min(num, 1)))
            self.bytes.give_back(owner, max(0, min(size, file.num_bytes)))
        await on_thread(self._blobs.delete, blob_of(file.id))


class _Opened:
    """An open blob. Opening and closing it blocks."""

    def __init__(self, blobs: Blobs, name: str, offset: int) -> None:
        self._context = blobs.open(name, offset)
        self._file = self._context.__enter__()

    def read(self, num_bytes: int) -> bytes:
        return self._file.read(num_bytes)

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.__exit__(None, None, None)


class Upload:
    """One upload. Call `write` for all bytes, then `keep`."""

    def __init__(self, files: Files, id: str, writer: BlobWriter, owner: str | None) -> None:
        self.num_bytes = 0
        self.claimed = 0
        self.is_kept = False
        """Whether the file is in the store."""
        self._files = files
        self._id = id
        self._writer = writer
        self._owner = owner
        self._pending = bytearray()

    async def write(self, data: bytes) -> None:
        """Append `data` to the file. Raises `RequestTooLarge`."""
        self.num_bytes += len(data)
        limits = self._files.limits
        if self.num_bytes > limits.max_file:
            raise RequestTooLarge(
                f"`file`: must have at most {limits.max_file} bytes (--max-file-size)", field="file"
            )
        if not self._files.claim_bytes(self._owner, len(data)):
            raise RequestTooLarge(
                "`file`: no storage is left. All files together may have "
                f"{limits.max_total} bytes (--files-limit), and one caller's files at most "
                "as many as are free. Delete some files first",
                field="file",
            )
        self.claimed += len(data)
        self._pending += data
        if len(self._pending) >= PIECE:
            await self._flush()

    async def keep(self, *, name: str, purpose: str, expires_after: float | None) -> SavedFile:
        """Add the complete file to the store. The file expires after `expires_after` seconds."""
        await self._flush()
        await on_thread(self._writer.commit)
        file = SavedFile(
            id=self._id,
            owner=self._owner,
            name=name,
            purpose=purpose,
            num_bytes=self.num_bytes,
            created_at=self._files._clock(),
        )
        if expires_after is not None:
            file = replace(file, expires_at=file.created_at + expires_after)
        await self._files.keep(file)
        self.is_kept = True
        return file

    async def _flush(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        if data:
            await on_thread(self._writer.write, data)


def _sum(stored: Mapping[str, int], coming: Amounts[str]) -> dict[str, int]:
    """Return the bytes of each owner, in stored files and in uploads."""
    return {owner: stored.get(owner, 0) + coming[owner] for owner in {*stored, *coming}}


def new_file_id() -> str:
    """Return a new id that nobody can guess."""
    return f"file-{uuid.uuid4().hex}"


FORGOTTEN = 86_400.0
"""The age in seconds from which a blob without a database row counts as abandoned."""

AT_ONCE = 200

logger = logging.getLogger(__name__)


async def delete_orphans(store: JobStore, blobs: Blobs, now: float) -> int:
    """Delete the blobs that no file or batch needs, and return their number.

    Such blobs come from interrupted uploads and from processes that were killed. Blobs younger
    than `FORGOTTEN` are kept, because their rows may follow. If the store knows none of the files,
    nothing is deleted, because the files may belong to another store.

    Names are listed before the store is asked, so later blobs are not deleted.
    Raises `StoreAway` and `BlobsAway`.
    """
    before = now - FORGOTTEN
    await on_thread(blobs.delete_unfinished, before)
    files = await on_thread(blobs.names, "files")
    results = await on_thread(blobs.names, "batches")
    orphans = await _files(store, files)
    if not store.is_lasting or len(orphans) == len(files) > 0:
        return 0
    orphans += await _results(store, results)
    num_deleted = await on_thread(_delete_old, blobs, orphans, before)
    if num_deleted:
        logger.info("deleted %d stored files that no file or batch refers to", num_deleted)
    return num_deleted


async def _files(store: JobStore, names: Iterable[str]) -> list[str]:
    """Return the names of files that are not in the store."""
    orphans: list[str] = []
    for part in _parts([name for name in names if _second(name).startswith("file-")]):
        known = await store.known_files([_second(name) for name in part])
        orphans += [name for name in part if _second(name) not in known]
    return orphans


async def _results(store: JobStore, names: Iterable[str]) -> list[str]:
    """Return the names of chunk results whose batch is not open; only open batches need them."""
    found = [name for name in names if _second(name).startswith("batch_")]
    open_ids = {batch.id for batch in await store.open_batches()} if found else set()
    return [name for name in found if _second(name) not in open_ids]


def _delete_old(blobs: Blobs, names: Iterable[str], before: float) -> int:
    num_deleted = 0
    for name in names:
        at = blobs.modified_at(name)
        if at is not None and at < before:
            blobs.delete(name)
            num_deleted += 1
    return num_deleted


def _second(name: str) -> str:
    """Return the id in a name such as `files/ID` or `batches/ID/…`."""
    return name.split("/")[1]


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE))
