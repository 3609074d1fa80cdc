"""The interface of what keeps files and batches, and its error."""

from collections.abc import Sequence
from typing import Protocol

from .records import Chunk, ChunkResults, ChunkSums, FileTotals, Order, SavedBatch, SavedFile


class BatchConflict(Exception):
    """Somebody else saved the batch in the meantime, or it is gone."""


class JobStore(Protocol):
    """Every method raises `StoreAway`. One that returns has written for good.

    Several balancers may share it. Who works at a chunk leases it: `runner` is one balancer, and
    `until` the time at which others may have the chunk.
    """

    @property
    def is_lasting(self) -> bool:
        """Whether it outlives the process, so that bytes without a row are nobody's."""

    # ---- files

    async def add_file(self, file: SavedFile) -> None:
        """Add a file."""

    async def file(self, id: str) -> SavedFile | None:
        """The file of that id, whoever's it is."""

    async def files(
        self, owner: str | None, *, purpose: str | None, after: str | None, limit: int, order: Order
    ) -> list[SavedFile]:
        """Files of one owner, at most `limit`, from behind the one with the id `after`."""

    async def known_files(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that are files; at most some hundred."""

    async def forget_file(self, id: str) -> bool:
        """Delete it; whether it was there."""

    async def expired_files(self, now: float, limit: int) -> list[SavedFile]:
        """Files whose time has come."""

    async def file_totals(self) -> FileTotals:
        """How many files there are, and how large they are together."""

    # ---- batches

    async def save_batch(self, batch: SavedBatch, files: Sequence[SavedFile] = ()) -> None:
        """Add revision 1, or replace the revision before, and add its result `files`, all at once.

        Raises `BatchConflict`.
        """

    async def batch(self, id: str) -> SavedBatch | None:
        """The batch of that id, whoever's it is."""

    async def batches(
        self, owner: str | None, *, after: str | None, limit: int
    ) -> list[SavedBatch]:
        """Batches of one owner, the newest first."""

    async def all_batches(self, limit: int) -> list[SavedBatch]:
        """Everybody's: those that are open first, then the newest."""

    async def open_batches(self) -> list[SavedBatch]:
        """Those that have not ended, the oldest first."""

    async def forget_ended(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` batches that have ended; the ids of those."""

    async def claim_batch(self, id: str, runner: str, now: float, until: float) -> bool:
        """Reserve what only one may do: to check its input, and to put results together."""

    # ---- chunks

    async def add_chunks(self, batch: str, chunks: Sequence[Chunk]) -> None:
        """Add chunks that wait."""

    async def forget_chunks(self, batch: str) -> None:
        """Delete all of them."""

    async def lease_chunk(self, batch: str, runner: str, now: float, until: float) -> Chunk | None:
        """The first chunk that waits, or that another runner has not kept; it is leased now."""

    async def extend_leases(self, runner: str, until: float) -> None:
        """What this runner has claimed and leased is his until then."""

    async def release(self, runner: str, batch: str | None = None) -> None:
        """What this runner had is free, of one batch or of all: he starts anew."""

    async def commit_chunk(
        self, batch: str, number: int, runner: str, results: ChunkResults
    ) -> bool:
        """These are the chunk's results; `False` if the lease was lost, so others' are."""

    async def sums(self, batch: str) -> ChunkSums:
        """How far a batch is."""

    async def done_chunks(
        self, batch: str, *, after: int, limit: int
    ) -> list[tuple[int, ChunkResults]]:
        """Chunks with results behind number `after`, in their order."""
