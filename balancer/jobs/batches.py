"""Creates, finds, lists and cancels batches for callers. The `runner` runs the batches."""

import time
import uuid
from collections.abc import Callable, Sequence

from ...shared.errors import InvalidRequest, NotFound, Overloaded
from ..fleet.caller import Caller
from ..fleet.shares import EVERYBODY, Shares
from ..store.job_records import SavedBatch, SavedFile
from ..store.jobs import BatchConflict, JobStore
from .batch import Batch, BatchCaller, NewBatch, from_document, to_document
from .files import Files

MAX_OPEN = 1000
"""The maximum number of batches that have not ended."""

MAX_ENDED = 10_000
"""The maximum number of ended batches. The owner with most loses its oldest batch first."""

RETRY_AFTER = 60.0
"""The seconds after which a caller may try again if there are too many batches."""

MAX_TRIES = 20


class Batches:
    """The batches of a balancer. A caller cannot find batches of other owners."""

    def __init__(
        self,
        store: JobStore,
        files: Files,
        *,
        on_change: Callable[[], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make the collection. `on_change` is called after a batch was created or cancelled."""
        self._store = store
        self._files = files
        self._clock = clock
        self._on_change = on_change
        self.open: Shares[str] = Shares(MAX_OPEN, everybody=EVERYBODY)

    async def create(self, requested: NewBatch, caller: Caller) -> Batch:
        """Create a batch. Raises `NotFound`, `InvalidRequest` and `Overloaded`."""
        file = await self._files.find(requested.input_file, caller.owner, "input_file_id")
        if file.purpose != "batch":
            raise InvalidRequest(
                "`input_file_id`: the file must have been uploaded with `purpose` batch",
                field="input_file_id",
            )
        await self._claim(caller.owner or EVERYBODY)
        now = self._clock()
        batch = Batch(
            id=f"batch_{uuid.uuid4().hex}",
            endpoint=requested.endpoint,
            input_file=file.id,
            completion_window=requested.completion_window,
            caller=BatchCaller(name=caller.name, owner=caller.owner, address=caller.address),
            created_at=now,
            expires_at=now + requested.window,
            metadata=requested.metadata,
            output_expires_after=requested.output_expires_after,
        )
        await self._store.save_batch(_saved(batch, 1))
        self._on_change()
        return batch

    async def _claim(self, owner: str) -> None:
        """Count one more batch of the owner. Raises `Overloaded`."""
        open = await self._store.num_open_batches()
        self.open.recount({owner or EVERYBODY: num for owner, num in open.items()})
        if not self.open.claim(owner, 1):
            raise Overloaded(
                f"{self.open.total} batches already run or wait, {self.open.held(owner)} "
                f"of them from this caller; all callers share {MAX_OPEN}. Try again when "
                "some have ended",
                retry_after=RETRY_AFTER,
            )

    async def find(self, id: str, owner: str | None) -> Batch:
        """Return the owner's batch with the id `id`. Raises `NotFound`."""
        saved = await self._store.batch(id)
        if saved is None or saved.owner != owner:
            raise unknown(id)
        return from_document(saved.document)

    async def has(self, id: str, owner: str | None) -> bool:
        """Return whether the owner has a batch with the id `id`."""
        saved = await self._store.batch(id)
        return saved is not None and saved.owner == owner

    async def page(self, owner: str | None, *, after: str | None, limit: int) -> list[Batch]:
        """Return a page of the owner's batches, newest first."""
        saved = await self._store.batches(owner, after=after, limit=limit)
        return [from_document(each.document) for each in saved]

    async def reader_of(self, file: str) -> str | None:
        """Return the id of a batch that has not ended and reads the file, or `None`."""
        saved = await self._store.open_batches()
        batches = (from_document(each.document) for each in saved)
        return next((e.id for e in batches if e.input_file == file and not e.has_ended), None)

    async def newest(self, limit: int) -> list[Batch]:
        """Return batches of all owners, open batches first."""
        return [from_document(each.document) for each in await self._store.all_batches(limit)]

    async def cancel(self, id: str) -> Batch:
        """Cancel a batch of any owner. Raises `NotFound` and `Conflict`."""
        batch = await self.change(id, lambda batch: batch.cancelling(self._clock()), is_urgent=True)
        self._on_change()
        return batch

    async def counts(self, batch: Batch) -> tuple[int, int]:
        """Return the numbers of lines with a stored output and with a stored error."""
        if batch.has_ended:
            return batch.num_completed, batch.num_failed
        sums = await self._store.sums(batch.id)
        return sums.num_completed, sums.num_failed

    async def change(
        self,
        id: str,
        change: Callable[[Batch], Batch],
        files: Sequence[SavedFile] = (),
        *,
        is_open: bool = True,
        is_urgent: bool = False,
    ) -> Batch:
        """Change the batch with `change`, and save the result together with its result `files`.

        `change` is called again if another balancer changed the batch at the same time. The batch
        stays open if `is_open`. If `is_urgent`, the balancer that runs the batch is notified.

        Raises `NotFound` and the errors of `change`.
        """
        for _ in range(MAX_TRIES):
            saved = await self._store.batch(id)
            if saved is None:
                raise unknown(id)
            former = from_document(saved.document)
            batch = change(former)
            if batch == former and is_open == saved.is_open and not files:
                return batch
            try:
                await self._store.save_batch(
                    _saved(batch, saved.revision + 1, is_open=is_open), files, is_urgent=is_urgent
                )
            except BatchConflict:
                continue
            self._files.added(*files)
            return batch
        raise Overloaded("too many callers change this batch at once; try again in a moment")


def _saved(batch: Batch, revision: int, *, is_open: bool = True) -> SavedBatch:
    return SavedBatch(
        id=batch.id,
        owner=batch.caller.owner,
        created_at=batch.created_at,
        revision=revision,
        is_open=is_open,
        document=to_document(batch),
    )


def unknown(id: str) -> NotFound:
    """Return the error for a batch that does not exist or belongs to another owner."""
    return NotFound(f"no batch has the id {id[:100]!r}")
