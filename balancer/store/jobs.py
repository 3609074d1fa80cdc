"""Files, batches and chunks in SQL. Each method is one transaction."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import (
    RowMapping,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from .database import Database, notify_changed
from .fair_ranks import fairly_ranked
from .job_records import Chunk, ChunkResults, ChunkSums, FileTotals, Order, SavedBatch, SavedFile
from .records import storable_text
from .tables import BATCHES, CHUNKS, FILES

_BATCH = [BATCHES.c[name] for name in SavedBatch.__slots__]
_CHUNK = [CHUNKS.c[name] for name in Chunk.__slots__]
_RESULTS = [CHUNKS.c[name] for name in ChunkResults.__slots__]
_SUMS = select(
    func.count().label("num_chunks"),
    func.count(CHUNKS.c.key).label("num_done"),
    func.coalesce(func.sum(CHUNKS.c.num_completed), 0).label("num_completed"),
    func.coalesce(func.sum(CHUNKS.c.num_failed), 0).label("num_failed"),
)
_FILE_TOTALS = select(
    FILES.c.owner,
    func.count().label("num_files"),
    func.coalesce(func.sum(FILES.c.num_bytes), 0).label("num_bytes"),
).group_by(FILES.c.owner)


class BatchConflict(Exception):
    """Another call saved the batch in the meantime, or the batch does not exist."""


class JobStore:
    """Stores files and batches. Every method raises `StoreAway`.

    When a method returns, its change is written. Several balancers may share the store. The
    balancer that runs a batch holds a lease on the batch under its name, `runner`, until the time
    `until`. After this time another balancer may take over the batch.
    """

    def __init__(self, database: Database) -> None:
        self._transaction = database.transaction
        self.is_lasting = database.is_lasting
        """Whether the store outlives the process, so that blobs without a row have no owner."""

    # ---- files

    async def add_file(self, file: SavedFile) -> None:
        """Add a file."""
        async with self._transaction() as connection:
            await connection.execute(insert(FILES).values(_storable(file)))

    async def file(self, id: str) -> SavedFile | None:
        """Return the file with this id, whoever owns the file."""
        row = await self._one(select(FILES).where(FILES.c.id == storable_text(id)))
        return None if row is None else SavedFile(**row)

    async def files(
        self, owner: str | None, *, purpose: str | None, after: str | None, limit: int, order: Order
    ) -> list[SavedFile]:
        """Return at most `limit` files of one owner that follow the file with the id `after`."""
        chosen = _page(select(FILES), FILES, owner, after, limit, order)
        if purpose is not None:
            chosen = chosen.where(FILES.c.purpose == storable_text(purpose))
        return [SavedFile(**row) for row in await self._all(chosen)]

    async def known_files(self, ids: Sequence[str]) -> set[str]:
        """Return the `ids` that belong to files. Pass at most a few hundred."""
        rows = await self._all(select(FILES.c.id).where(FILES.c.id.in_(ids)))
        return {str(row["id"]) for row in rows}

    async def forget_file(self, id: str) -> bool:
        """Delete a file. Returns whether the file was stored."""
        async with self._transaction() as connection:
            result = await connection.execute(delete(FILES).where(FILES.c.id == id))
            return result.rowcount == 1

    async def expired_files(self, now: float, limit: int) -> list[SavedFile]:
        """Return files that have expired."""
        chosen = select(FILES).where(FILES.c.expires_at <= now).limit(limit)
        return [SavedFile(**row) for row in await self._all(chosen)]

    async def file_totals(self) -> dict[str | None, FileTotals]:
        """Return the number of each owner's files, and their total size."""
        rows = await self._all(_FILE_TOTALS)
        return {
            row["owner"]: FileTotals(
                num_files=int(row["num_files"]), num_bytes=int(row["num_bytes"])
            )
            for row in rows
        }

    # ---- batches

    async def save_batch(
        self, batch: SavedBatch, files: Sequence[SavedFile] = (), *, is_urgent: bool = False
    ) -> None:
        """Add revision 1, or replace the previous revision, and add result `files`.

        One transaction makes all changes. If `is_urgent`, the balancer that runs the batch is
        notified. Raises `BatchConflict`.
        """
        values = _storable(batch)
        is_former = and_(BATCHES.c.id == batch.id, BATCHES.c.revision == batch.revision - 1)
        async with self._transaction() as connection:
            if batch.revision == 1:
                await connection.execute(insert(BATCHES).values(values))
            else:
                changed = await connection.execute(update(BATCHES).where(is_former).values(values))
                if changed.rowcount != 1:
                    raise BatchConflict(batch.id)
            if files:
                await connection.execute(insert(FILES), [_storable(each) for each in files])
            if is_urgent:
                await notify_changed(connection, "batches")

    async def batch(self, id: str) -> SavedBatch | None:
        """Return the batch with this id, whoever owns the batch."""
        row = await self._one(select(*_BATCH).where(BATCHES.c.id == storable_text(id)))
        return None if row is None else SavedBatch(**row)

    async def batches(
        self, owner: str | None, *, after: str | None, limit: int
    ) -> list[SavedBatch]:
        """Return batches of one owner, newest first."""
        chosen = _page(select(*_BATCH), BATCHES, owner, after, limit, "desc")
        return [SavedBatch(**row) for row in await self._all(chosen)]

    async def all_batches(self, limit: int) -> list[SavedBatch]:
        """Return the batches of all owners: first the open ones, then the newest ended ones."""
        order = (BATCHES.c.is_open.desc(), BATCHES.c.created_at.desc(), BATCHES.c.id.desc())
        chosen = select(*_BATCH).order_by(*order).limit(limit)
        return [SavedBatch(**row) for row in await self._all(chosen)]

    async def open_batches(self) -> list[SavedBatch]:
        """Return the batches that have not ended, oldest first."""
        chosen = select(*_BATCH).where(BATCHES.c.is_open)
        ordered = chosen.order_by(BATCHES.c.created_at, BATCHES.c.id)
        return [SavedBatch(**row) for row in await self._all(ordered)]

    async def num_open_batches(self) -> dict[str | None, int]:
        """Return the number of open batches of each owner."""
        counted = select(BATCHES.c.owner, func.count().label("num")).where(BATCHES.c.is_open)
        rows = await self._all(counted.group_by(BATCHES.c.owner))
        return {row["owner"]: int(row["num"]) for row in rows}

    async def forget_ended(self, keep: int) -> list[str]:
        """Delete all but `keep` ended batches. Returns the ids of the deleted batches.

        The owner with the most batches first loses the oldest one.
        """
        ranked = fairly_ranked(
            BATCHES.c.id,
            BATCHES.c.owner,
            latest=(BATCHES.c.created_at.desc(), BATCHES.c.id.desc()),
            num_bytes=literal(1),
            among=~BATCHES.c.is_open,
        )
        async with self._transaction() as connection:
            beyond = select(ranked.c.id).where(ranked.c.place > keep)
            old = list((await connection.execute(beyond)).scalars())
            if old:
                await connection.execute(delete(CHUNKS).where(CHUNKS.c.batch.in_(old)))
                await connection.execute(delete(BATCHES).where(BATCHES.c.id.in_(old)))
        return old

    # ---- leases

    async def claim_batch(
        self, id: str, runner: str, now: float, until: float
    ) -> SavedBatch | None:
        """Give the runner the lease on a batch. Returns the batch.

        Returns `None` if another runner has the batch, or if the batch has ended.
        """
        is_free = or_(BATCHES.c.runner.is_(None), BATCHES.c.leased_until <= now)
        claim = (
            update(BATCHES)
            .where(BATCHES.c.id == id, BATCHES.c.is_open, or_(is_free, BATCHES.c.runner == runner))
            .values(runner=runner, leased_until=until)
            .returning(*_BATCH)
        )
        async with self._transaction() as connection:
            row = (await connection.execute(claim)).mappings().one_or_none()
            return None if row is None else SavedBatch(**row)

    async def extend_leases(self, runner: str, until: float) -> set[str]:
        """Extend the leases of this runner to `until`. Returns the batches with such a lease."""
        mine = update(BATCHES).where(BATCHES.c.is_open, BATCHES.c.runner == runner)
        async with self._transaction() as connection:
            kept = mine.values(leased_until=until).returning(BATCHES.c.id)
            return set((await connection.execute(kept)).scalars())

    async def release(self, runner: str) -> None:
        """Release the batches of this runner."""
        mine = update(BATCHES).where(BATCHES.c.runner == runner)
        async with self._transaction() as connection:
            await connection.execute(mine.values(runner=None, leased_until=None))

    # ---- chunks

    async def add_chunks(self, batch: str, chunks: Sequence[Chunk]) -> None:
        """Add chunks without results."""
        async with self._transaction() as connection:
            rows = [{"batch": batch, **asdict(each)} for each in chunks]
            await connection.execute(insert(CHUNKS), rows)

    async def forget_chunks(self, batch: str) -> None:
        """Delete all chunks of a batch."""
        async with self._transaction() as connection:
            await connection.execute(delete(CHUNKS).where(CHUNKS.c.batch == batch))

    async def next_chunk(self, batch: str, after: int) -> Chunk | None:
        """Return the first chunk without results after number `after`."""
        is_next = and_(CHUNKS.c.batch == batch, CHUNKS.c.number > after, CHUNKS.c.key.is_(None))
        row = await self._one(select(*_CHUNK).where(is_next).order_by(CHUNKS.c.number).limit(1))
        return None if row is None else Chunk(**row)

    async def commit_chunk(
        self, batch: str, number: int, runner: str, results: ChunkResults
    ) -> bool:
        """Save the results of a chunk. Returns false if another runner now has the batch."""
        is_chunk = and_(CHUNKS.c.batch == batch, CHUNKS.c.number == number)
        fresh = or_(CHUNKS.c.key.is_(None), CHUNKS.c.key == results.key)
        is_mine = select(BATCHES.c.id).where(BATCHES.c.id == batch, BATCHES.c.runner == runner)
        async with self._transaction() as connection:
            # On PostgreSQL nobody takes the batch over until this is done.
            if (await connection.execute(is_mine.with_for_update())).first() is None:
                return False
            changed = await connection.execute(
                update(CHUNKS).where(is_chunk, fresh).values(**asdict(results))
            )
            return changed.rowcount == 1

    async def sums(self, batch: str) -> ChunkSums:
        """Return a batch's progress."""
        row = await self._one(_SUMS.where(CHUNKS.c.batch == batch))
        return ChunkSums(**_whole(row)) if row else ChunkSums()

    async def done_chunks(
        self, batch: str, *, after: int, limit: int
    ) -> list[tuple[int, ChunkResults]]:
        """Return chunks with results after number `after`, in order."""
        chosen = (
            select(CHUNKS.c.number, *_RESULTS)
            .where(CHUNKS.c.batch == batch, CHUNKS.c.number > after, CHUNKS.c.key.is_not(None))
            .order_by(CHUNKS.c.number)
            .limit(limit)
        )
        rows = [dict(row) for row in await self._all(chosen)]
        return [(int(row.pop("number")), ChunkResults(**row)) for row in rows]

    # ---- inside

    async def _one(self, statement: Select[*tuple[object, ...]]) -> RowMapping | None:
        async with self._transaction() as connection:
            return (await connection.execute(statement)).mappings().one_or_none()

    async def _all(self, statement: Select[*tuple[object, ...]]) -> Sequence[RowMapping]:
        async with self._transaction() as connection:
            return (await connection.execute(statement)).mappings().all()


def _page(
    chosen: Select[*tuple[object, ...]],
    table: Table,
    owner: str | None,
    after: str | None,
    limit: int,
    order: Order,
) -> Select[*tuple[object, ...]]:
    place = (table.c.created_at, table.c.id)
    chosen = chosen.where(table.c.owner == owner)
    if after is not None:
        after = storable_text(after)
        time = select(table.c.created_at).where(table.c.id == after).scalar_subquery()
        later = or_(table.c.created_at > time, and_(table.c.created_at == time, table.c.id > after))
        sooner = or_(
            table.c.created_at < time, and_(table.c.created_at == time, table.c.id < after)
        )
        chosen = chosen.where(later if order == "asc" else sooner)
    ordered = place if order == "asc" else tuple(each.desc() for each in place)
    return chosen.order_by(*ordered).limit(limit)


def _storable(record: SavedFile | SavedBatch) -> dict[str, object]:
    """Return the record's values without characters that PostgreSQL's text cannot hold."""
    return {
        name: storable_text(value) if isinstance(value, str) else value
        for name, value in asdict(record).items()
    }


def _whole(row: RowMapping) -> dict[str, int]:
    """Return a row with integers, because PostgreSQL sums integers to decimals."""
    return {name: int(value) for name, value in row.items()}
