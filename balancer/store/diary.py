"""The diary and the hosts, stored in SQL."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import delete, select

from .database import Database, notify_changed
from .records import MAX_DIARY, MAX_HOSTS, DiaryEntry, SavedHost, storable_text
from .tables import DIARY, HOSTS

_NEWEST = select(DIARY.c.number).order_by(DIARY.c.number.desc())
_OLDEST_KEPT = _NEWEST.offset(MAX_DIARY - 1).limit(1).scalar_subquery()
_LATEST_HOSTS = (
    select(HOSTS.c.name).order_by(HOSTS.c.last_seen.desc(), HOSTS.c.name).limit(MAX_HOSTS)
)


class DiaryStore:
    """Stores the diary, as a part of `store.Store`. Every method raises `StoreAway`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entries: Sequence[DiaryEntry], hosts: Sequence[SavedHost]) -> None:
        """Add entries, which get numbers, and replace hosts.

        Delete the oldest beyond the bounds.
        """
        async with self._database.transaction() as connection:
            if entries:
                rows = [_storable(each) for each in entries]
                for row in rows:
                    del row["number"]
                await connection.execute(DIARY.insert(), rows)
                await connection.execute(delete(DIARY).where(DIARY.c.number < _OLDEST_KEPT))
            for host in hosts:
                row = _storable(host)
                await connection.execute(delete(HOSTS).where(HOSTS.c.name == row["name"]))
                await connection.execute(HOSTS.insert().values(**row))
            if hosts:
                newest = select(_LATEST_HOSTS.subquery().c.name)
                await connection.execute(delete(HOSTS).where(HOSTS.c.name.not_in(newest)))
            await notify_changed(connection, "diary")

    async def find(
        self, *, since: float = 0.0, after: int = 0, limit: int, oldest_first: bool = False
    ) -> list[DiaryEntry]:
        """Return at most `limit` entries from `since` on with numbers above `after`, newest first.

        If `oldest_first`, return the entries directly after `after`.
        """
        order = DIARY.c.number if oldest_first else DIARY.c.number.desc()
        query = select(DIARY).where((DIARY.c.at >= since) & (DIARY.c.number > after))
        async with self._database.transaction() as connection:
            rows = await connection.execute(query.order_by(order).limit(limit))
            return [DiaryEntry(**row) for row in rows.mappings()]

    async def load_hosts(self) -> list[SavedHost]:
        """Return all hosts, by name."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(HOSTS))).mappings().all()
        return sorted((SavedHost(**row) for row in rows), key=lambda host: host.name)

    async def forget_host(self, name: str) -> bool:
        """Delete a host. Returns whether the host was stored."""
        async with self._database.transaction() as connection:
            chosen = HOSTS.c.name == storable_text(name)
            deleted = await connection.execute(delete(HOSTS).where(chosen))
            await notify_changed(connection, "diary")
            return deleted.rowcount > 0


def _storable(record: DiaryEntry | SavedHost) -> dict[str, object]:
    """Return the record's values without characters that PostgreSQL's text cannot hold."""
    return {
        name: storable_text(value) if isinstance(value, str) else value
        for name, value in asdict(record).items()
    }
