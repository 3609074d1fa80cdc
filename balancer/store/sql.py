"""`sqlite:///` and `postgresql://`: one code for both, over SQLAlchemy."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from sqlalchemy import Insert, RowMapping, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from . import sql_cordons, sql_keys
from .conversations.sql import SqlConversations
from .engine import DatabaseFile, engine_of, reached
from .history.statements import NUM_ENDINGS, OLD_ENDINGS, endings_like, old_steps, steps_in
from .kept.sql import SqlKeptStore
from .migrate import migrate
from .news.records import News
from .news.sql import tell_changed, untold
from .port import RevisionConflict
from .records import (
    EndedRequest,
    EndingFilter,
    Persist,
    SavedCordon,
    SavedKey,
    SavedState,
    SavedStep,
    StepRange,
    UsageQuery,
    UsageRow,
    UsageSum,
    storable_text,
)
from .tables import DESIRED_STATE, ENDED_REQUESTS, HISTORY_STEPS, USAGE
from .url import StoreUrl
from .usage_statements import COUNTS, older_usage, replacing, usage_sums


def _told_to_nobody(_news: Sequence[News]) -> None:
    """There is one balancer."""


class SqlStore:
    """A `Store`, a `KeyStore`, a `CordonStore` and a `HistoryStore`."""

    def __init__(self, url: StoreUrl) -> None:
        self._url = url
        self._engine = engine_of(url)
        self._file = DatabaseFile(url.location) if url.kind == "sqlite" else None
        self.on_news: Callable[[Sequence[News]], None] = _told_to_nobody
        """Gets what a transaction had to tell and its database does not."""

    async def open(self) -> None:
        """Connect, and bring the tables to this version. Raises `StoreAway`, `StoreRefused`."""
        async with self.transaction() as connection:
            await connection.run_sync(migrate)

    async def load_desired_state(self) -> SavedState | None:
        async with self.transaction() as connection:
            return await _saved(connection)

    async def save_desired_state(self, persist: Persist) -> None:
        revision = persist.expected + 1
        async with self.transaction() as connection:
            result = await connection.execute(
                update(DESIRED_STATE)
                .where(DESIRED_STATE.c.revision == persist.expected)
                .values(revision=revision, document=persist.document)
            )
            if result.rowcount == 1:
                await tell_changed(connection, "desired_state")
                return
            saved = await _saved(connection)
        if saved != SavedState(revision, persist.document):
            raise RevisionConflict(saved)

    async def load_keys(self) -> list[SavedKey]:
        async with self.transaction() as connection:
            return await sql_keys.load_keys(connection)

    async def save_key(self, key: SavedKey) -> None:
        async with self.transaction() as connection:
            await sql_keys.save_key(connection, key)
            await tell_changed(connection, "keys")

    async def forget_key(self, name: str, revision: int) -> None:
        async with self.transaction() as connection:
            await sql_keys.forget_key(connection, name, revision)
            await tell_changed(connection, "keys")

    async def load_cordons(self) -> list[SavedCordon]:
        async with self.transaction() as connection:
            return await sql_cordons.load_cordons(connection)

    async def save_cordon(self, cordon: SavedCordon) -> None:
        async with self.transaction() as connection:
            await sql_cordons.save_cordon(connection, cordon)
            await tell_changed(connection, "cordons")

    async def forget_cordon(self, agent: str) -> None:
        async with self.transaction() as connection:
            await sql_cordons.forget_cordon(connection, agent)
            await tell_changed(connection, "cordons")

    async def append_history(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        async with self.transaction() as connection:
            await self._append(connection, HISTORY_STEPS, [asdict(each) for each in steps])
            await self._append(connection, ENDED_REQUESTS, [_storable(each) for each in endings])
            for too_old in old_steps(steps):
                await connection.execute(too_old)
            if endings:
                await connection.execute(OLD_ENDINGS)
            if usage:
                await connection.execute(self._replace_usage(), [_storable(row) for row in usage])
                await connection.execute(older_usage(max(row.day for row in usage)))

    async def load_steps(self, wanted: StepRange, *, but: str | None = None) -> list[SavedStep]:
        async with self.transaction() as connection:
            rows = (await connection.execute(steps_in(wanted, but))).all()
        return [SavedStep(wanted.width, row.at, row.document, row.source) for row in reversed(rows)]

    async def find_endings(self, wanted: EndingFilter) -> tuple[list[EndedRequest], int]:
        async with self.transaction() as connection:
            found = await connection.execute(endings_like(wanted, self._url.kind))
            num = await connection.execute(NUM_ENDINGS)
            return [EndedRequest(**row) for row in found.mappings()], num.scalar_one()

    async def load_usage(self, query: UsageQuery, run: str, held_from: int) -> list[UsageSum]:
        async with self.transaction() as connection:
            rows = (await connection.execute(usage_sums(query, run, held_from))).mappings().all()
        return [_usage_sum(row) for row in rows]

    @property
    def kept(self) -> SqlKeptStore:
        """What keeps requests that outlive their balancer."""
        return SqlKeptStore(self.transaction, self._url.kind)

    @property
    def conversations(self) -> SqlConversations:
        """What keeps conversations that several balancers may continue."""
        return SqlConversations(self.transaction, self._url.kind)

    async def close(self) -> None:
        await self._engine.dispose()
        if self._file is not None:
            self._file.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Inside, all or nothing is written. Raises `StoreAway`.

        The file is looked at before, so that nothing comes from another one, and after, so that
        nothing is confirmed that went into another one.
        """
        with reached(self._url):
            await self._check_file()
            async with self._engine.begin() as connection:
                untold(connection)  # of a transaction that was rolled back
                yield connection
                news = untold(connection)
            await self._check_file()
        if news:
            self.on_news(news)

    async def _check_file(self) -> None:
        if self._file is not None:
            await self._file.check()

    async def _append(
        self, connection: AsyncConnection, table: Table, rows: list[Mapping[str, object]]
    ) -> None:
        if rows:
            await connection.execute(self._insert(table), rows)

    def _replace_usage(self) -> Insert:
        if self._url.kind == "sqlite":
            return replacing(sqlite.insert(USAGE))
        return replacing(postgresql.insert(USAGE))

    def _insert(self, table: Table) -> Insert:
        """Leaves the rows alone that are there."""
        if self._url.kind == "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
        return postgresql.insert(table).on_conflict_do_nothing()


async def _saved(connection: AsyncConnection) -> SavedState | None:
    query = select(DESIRED_STATE.c.revision, DESIRED_STATE.c.document)
    row = (await connection.execute(query)).one()
    return SavedState(row.revision, row.document) if row.revision else None


def _storable(record: EndedRequest | UsageRow) -> Mapping[str, object]:
    """Its values, without characters that PostgreSQL's text cannot hold."""
    return {name: _text(value) for name, value in asdict(record).items()}


def _usage_sum(row: RowMapping) -> UsageSum:
    """PostgreSQL adds whole numbers up to decimals."""
    values = dict(row)
    return UsageSum(**values | {name: int(values[name]) for name in COUNTS})


def _text(value: object) -> object:
    return storable_text(value) if isinstance(value, str) else value
