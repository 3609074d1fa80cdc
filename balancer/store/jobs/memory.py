"""`memory://`: files and batches that are known as long as the balancer lives."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .port import BatchConflict
from .records import Chunk, ChunkResults, ChunkSums, FileTotals, Order, SavedBatch, SavedFile

Listed = TypeVar("Listed", SavedFile, SavedBatch)


@dataclass(slots=True)
class _Lease:
    runner: str
    until: float

    def is_free_for(self, runner: str, now: float) -> bool:
        return self.runner == runner or self.until <= now


@dataclass(slots=True)
class _Chunk:
    chunk: Chunk
    lease: _Lease | None = None
    results: ChunkResults | None = None


class MemoryJobs:
    """A `JobStore`."""

    def __init__(self) -> None:
        self.is_lasting = False
        self._files: dict[str, SavedFile] = {}
        self._batches: dict[str, SavedBatch] = {}
        self._claims: dict[str, _Lease] = {}
        self._chunks: dict[str, dict[int, _Chunk]] = {}

    # ---- files

    async def add_file(self, file: SavedFile) -> None:
        self._files[file.id] = file

    async def file(self, id: str) -> SavedFile | None:
        return self._files.get(id)

    async def files(
        self, owner: str | None, *, purpose: str | None, after: str | None, limit: int, order: Order
    ) -> list[SavedFile]:
        theirs = [
            each
            for each in self._files.values()
            if each.owner == owner and purpose in (None, each.purpose)
        ]
        return _page(theirs, self._files.get(after or ""), limit, order)

    async def known_files(self, ids: Sequence[str]) -> set[str]:
        return {id for id in ids if id in self._files}

    async def forget_file(self, id: str) -> bool:
        return self._files.pop(id, None) is not None

    async def expired_files(self, now: float, limit: int) -> list[SavedFile]:
        over = (f for f in self._files.values() if f.expires_at is not None and f.expires_at <= now)
        return list(over)[:limit]

    async def file_totals(self) -> FileTotals:
        sizes = [each.num_bytes for each in self._files.values()]
        return FileTotals(num_files=len(sizes), num_bytes=sum(sizes))

    # ---- batches

    async def save_batch(self, batch: SavedBatch, files: Sequence[SavedFile] = ()) -> None:
        current = self._batches.get(batch.id)
        if batch.revision != (1 if current is None else current.revision + 1):
            raise BatchConflict(batch.id)
        self._batches[batch.id] = batch
        self._files |= {each.id: each for each in files}

    async def batch(self, id: str) -> SavedBatch | None:
        return self._batches.get(id)

    async def batches(
        self, owner: str | None, *, after: str | None, limit: int
    ) -> list[SavedBatch]:
        theirs = [each for each in self._batches.values() if each.owner == owner]
        return _page(theirs, self._batches.get(after or ""), limit, "desc")

    async def all_batches(self, limit: int) -> list[SavedBatch]:
        newest = sorted(self._batches.values(), key=_place, reverse=True)
        return sorted(newest, key=lambda each: not each.is_open)[:limit]

    async def open_batches(self) -> list[SavedBatch]:
        return sorted((each for each in self._batches.values() if each.is_open), key=_place)

    async def forget_ended(self, keep: int) -> list[str]:
        ended = [each for each in self._batches.values() if not each.is_open]
        old = [each.id for each in sorted(ended, key=_place, reverse=True)[keep:]]
        for id in old:
            del self._batches[id]
            self._claims.pop(id, None)
            self._chunks.pop(id, None)
        return old

    async def claim_batch(self, id: str, runner: str, now: float, until: float) -> bool:
        claim = self._claims.get(id)
        if id not in self._batches or (claim is not None and not claim.is_free_for(runner, now)):
            return False
        self._claims[id] = _Lease(runner, until)
        return True

    # ---- chunks

    async def add_chunks(self, batch: str, chunks: Sequence[Chunk]) -> None:
        known = self._chunks.setdefault(batch, {})
        known |= {each.number: _Chunk(each) for each in chunks}

    async def forget_chunks(self, batch: str) -> None:
        self._chunks.pop(batch, None)

    async def lease_chunk(self, batch: str, runner: str, now: float, until: float) -> Chunk | None:
        for each in self._chunks.get(batch, {}).values():
            lease = each.lease
            is_free = lease is None or (lease.until <= now and lease.runner != runner)
            if each.results is None and is_free:
                each.lease = _Lease(runner, until)
                return each.chunk
        return None

    async def extend_leases(self, runner: str, until: float) -> None:
        for lease in self._leases():
            if lease.runner == runner:
                lease.until = until

    async def release(self, runner: str, batch: str | None = None) -> None:
        for id in [batch] if batch is not None else [*self._chunks, *self._claims]:
            if (claim := self._claims.get(id)) is not None and claim.runner == runner:
                del self._claims[id]
            for chunk in self._chunks.get(id, {}).values():
                if chunk.lease is not None and chunk.lease.runner == runner:
                    chunk.lease = None

    async def commit_chunk(
        self, batch: str, number: int, runner: str, results: ChunkResults
    ) -> bool:
        chunk = self._chunks.get(batch, {}).get(number)
        if chunk is None or chunk.lease is None or chunk.lease.runner != runner:
            return False
        if chunk.results is not None:
            return chunk.results == results
        chunk.results = results
        return True

    async def sums(self, batch: str) -> ChunkSums:
        chunks = self._chunks.get(batch, {}).values()
        done = [each.results for each in chunks if each.results is not None]
        return ChunkSums(
            num_chunks=len(chunks),
            num_done=len(done),
            num_completed=sum(each.num_completed for each in done),
            num_failed=sum(each.num_failed for each in done),
        )

    async def done_chunks(
        self, batch: str, *, after: int, limit: int
    ) -> list[tuple[int, ChunkResults]]:
        done = [
            (number, each.results)
            for number, each in sorted(self._chunks.get(batch, {}).items())
            if number > after and each.results is not None
        ]
        return done[:limit]

    def _leases(self) -> Iterable[_Lease]:
        yield from self._claims.values()
        for chunks in self._chunks.values():
            yield from (each.lease for each in chunks.values() if each.lease is not None)


def _place(each: SavedFile | SavedBatch) -> tuple[float, str]:
    return each.created_at, each.id


def _page(found: list[Listed], after: Listed | None, limit: int, order: Order) -> list[Listed]:
    found.sort(key=_place, reverse=order == "desc")
    if after is not None:
        sign = -1 if order == "desc" else 1
        place = _place(after)
        found = [e for e in found if _place(e) != place and (_place(e) > place) == (sign > 0)]
    return found[:limit]
