"""Files, batches and chunks in SQL. Each method is one transaction."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import (
    ColumnElement,
    RowMapping,
    Select,
    Table,
    Update,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from .database import Database
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
    """Another call saved the batch in the meantime, or it is gone."""


class JobStore:
    """Keeps files and batches. Every method raises `StoreAway`. One that returns has written.

    Several balancers may share it. Who works at a chunk leases it: `runner` is one balancer, and
    `until` the time at which others may have the chunk.
    """

    def __init__(self, database: Database) -> None:
        self._transaction = database.transaction
        self.is_lasting = database.is_lasting
        """Whether it outlives the process, so that bytes without a row have no owner."""

    # ---- files

    async def add_file(self, file: SavedFile) -> None:
        """Add a file."""
        async with self._transaction() as connection:
            await connection.execute(insert(FILES).values(_storable(file)))

    async def file(self, id: str) -> SavedFile | None:
        """The file of that id, of any owner."""
        row = await self._one(select(FILES).where(FILES.c.id == storable_text(id)))
        return None if row is None else SavedFile(**row)

    async def files(
        self, owner: str | None, *, purpose: str | None, after: str | None, limit: int, order: Order
    ) -> list[SavedFile]:
        """Files of one owner, at most `limit`, from behind the one with the id `after`."""
        chosen = _page(select(FILES), FILES, owner, after, limit, order)
        if purpose is not None:
            chosen = chosen.where(FILES.c.purpose == storable_text(purpose))
        return [SavedFile(**row) for row in await self._all(chosen)]

    async def known_files(self, ids: Sequence[str]) -> set[str]:
        """The `ids` that are files; at most some hundred are asked for."""
        rows = await self._all(select(FILES.c.id).where(FILES.c.id.in_(ids)))
        return {str(row["id"]) for row in rows}

    async def forget_file(self, id: str) -> bool:
        """Delete it; whether it was there."""
        async with self._transaction() as connection:
            result = await connection.execute(delete(FILES).where(FILES.c.id == id))
            return result.rowcount == 1

    async def expired_files(self, now: float, limit: int) -> list[SavedFile]:
        """Files whose time has come."""
        chosen = select(FILES).where(FILES.c.expires_at <= now).limit(limit)
        return [SavedFile(**row) for row in await self._all(chosen)]

    async def file_totals(self) -> dict[str | None, FileTotals]:
        """How many files each owner has, and how large they are together."""
        rows = await self._all(_FILE_TOTALS)
        return {
            row["owner"]: FileTotals(
                num_files=int(row["num_files"]), num_bytes=int(row["num_bytes"])
            )
            for row in rows
        }

    # ---- batches

    async def save_batch(self, batch: SavedBatch, files: Sequence[SavedFile] = ()) -> None:
        """Add revision 1, or replace the revision before, and add its result `files`, all at once.

        Raises `BatchConflict`.
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

    async def batch(self, id: str) -> SavedBatch | None:
        """The batch of that id, of any owner."""
        row = await self._one(select(*_BATCH).where(BATCHES.c.id == storable_text(id)))
        return None if row is None else SavedBatch(**row)

    async def batches(
        self, owner: str | None, *, after: str | None, limit: int
    ) -> list[SavedBatch]:
        """Batches of one owner, the newest first."""
        chosen = _page(select(*_BATCH), BATCHES, owner, after, limit, "desc")
        return [SavedBatch(**row) for row in await self._all(chosen)]

    async def all_batches(self, limit: int) -> list[SavedBatch]:
        """Everybody's: those that are open first, then the newest."""
        order = (BATCHES.c.is_open.desc(), BATCHES.c.created_at.desc(), BATCHES.c.id.desc())
        chosen = select(*_BATCH).order_by(*order).limit(limit)
        return [SavedBatch(**row) for row in await self._all(chosen)]

    async def open_batches(self) -> list[SavedBatch]:
        """The batches that have not ended, the oldest first."""
        chosen = select(*_BATCH).where(BATCHES.c.is_open)
        ordered = chosen.order_by(BATCHES.c.created_at, BATCHES.c.id)
        return [SavedBatch(**row) for row in await self._all(ordered)]

    async def num_open_batches(self) -> dict[str | None, int]:
        """How many batches of each owner have not ended."""
        counted = select(BATCHES.c.owner, func.count().label("num")).where(BATCHES.c.is_open)
        rows = await self._all(counted.group_by(BATCHES.c.owner))
        return {row["owner"]: int(row["num"]) for row in rows}

    async def forget_ended(self, keep: int) -> list[str]:
        """Delete batches that have ended, but for `keep` of them; the ids of those.

        The oldest of the owner with most go first.
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

    async def claim_batch(self, id: str, runner: str, now: float, until: float) -> bool:
        """Reserve what only one may do: to check its input, and to put results together."""
        is_free = or_(BATCHES.c.runner.is_(None), BATCHES.c.leased_until <= now)
        statement = (
            update(BATCHES)
            .where(BATCHES.c.id == id, or_(is_free, BATCHES.c.runner == runner))
            .values(runner=runner, leased_until=until)
        )
        async with self._transaction() as connection:
            return (await connection.execute(statement)).rowcount == 1

    # ---- chunks

    async def add_chunks(self, batch: str, chunks: Sequence[Chunk]) -> None:
        """Add chunks that wait."""
        async with self._transaction() as connection:
            rows = [{"batch": batch, **asdict(each)} for each in chunks]
            await connection.execute(insert(CHUNKS), rows)

    async def forget_chunks(self, batch: str) -> None:
        """Delete all of them."""
        async with self._transaction() as connection:
            await connection.execute(delete(CHUNKS).where(CHUNKS.c.batch == batch))

    async def lease_chunk(self, batch: str, runner: str, now: float, until: float) -> Chunk | None:
        """The first chunk that waits, or that another runner has not kept; it is leased now."""
        is_over = and_(CHUNKS.c.leased_until <= now, CHUNKS.c.runner != runner)
        is_free = or_(CHUNKS.c.runner.is_(None), is_over)
        first = (
            select(*_CHUNK)
            .where(CHUNKS.c.batch == batch, CHUNKS.c.key.is_(None), is_free)
            .order_by(CHUNKS.c.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        async with self._transaction() as connection:
            row = (await connection.execute(first)).mappings().one_or_none()
            if row is None:
                return None
            await connection.execute(
                update(CHUNKS)
                .where(_is_chunk(batch, row["number"]))
                .values(runner=runner, leased_until=until)
            )
            return Chunk(**row)

    async def extend_leases(self, runner: str, until: float) -> None:
        """What this runner has claimed and leased is its own until then."""
        async with self._transaction() as connection:
            for statement in _leases_of(runner):
                await connection.execute(statement.values(leased_until=until))

    async def release(self, runner: str, batch: str | None = None) -> None:
        """What this runner had is free, of one batch or of all: it starts anew."""
        chunks, batches = _leases_of(runner)
        if batch is not None:
            chunks = chunks.where(CHUNKS.c.batch == batch)
            batches = batches.where(BATCHES.c.id == batch)
        async with self._transaction() as connection:
            for statement in (chunks, batches):
                await connection.execute(statement.values(runner=None, leased_until=None))

    async def commit_chunk(
        self, batch: str, number: int, runner: str, results: ChunkResults
    ) -> bool:
        """These are the chunk's results; `False` if the lease was lost, so others' are."""
        mine = and_(_is_chunk(batch, number), CHUNKS.c.runner == runner)
        fresh = or_(CHUNKS.c.key.is_(None), CHUNKS.c.key == results.key)
        async with self._transaction() as connection:
            changed = await connection.execute(
                update(CHUNKS).where(mine, fresh).values(**asdict(results))
            )
            return changed.rowcount == 1

    async def sums(self, batch: str) -> ChunkSums:
        """How far a batch is."""
        row = await self._one(_SUMS.where(CHUNKS.c.batch == batch))
        return ChunkSums(**_whole(row)) if row else ChunkSums()

    async def done_chunks(
        self, batch: str, *, after: int, limit: int
    ) -> list[tuple[int, ChunkResults]]:
        """Chunks with results behind number `after`, in their order."""
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


def _is_chunk(batch: str, number: int) -> ColumnElement[bool]:
    return and_(CHUNKS.c.batch == batch, CHUNKS.c.number == number)


def _leases_of(runner: str) -> tuple[Update, Update]:
    """Updates of what a runner has: chunks without results, and batches."""
    chunks = update(CHUNKS).where(CHUNKS.c.runner == runner, CHUNKS.c.key.is_(None))
    return chunks, update(BATCHES).where(BATCHES.c.runner == runner)


def _storable(record: SavedFile | SavedBatch) -> dict[str, object]:
    """Its values, without characters that PostgreSQL's text cannot hold."""
    return {
        name: storable_text(value) if isinstance(value, str) else value
        for name, value in asdict(record).items()
    }


def _whole(row: RowMapping) -> dict[str, int]:
    """PostgreSQL adds whole numbers up to decimals."""
    return {name: int(value) for name, value in row.items()}
