"""The store, which survives a restart of the balancer: SQLite, PostgreSQL and `memory://`."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from .conversations import SavedConversations
from .database import Database, notify_changed
from .diary import DiaryStore
from .history import HistoryStore
from .jobs import JobStore
from .port import KeyConflict, RevisionConflict, StoreAway, StoreRefused
from .records import (
    MAX_CORDONS,
    Persist,
    SavedCordon,
    SavedKey,
    SavedSession,
    SavedState,
    storable_text,
)
from .retained import RetainedStore
from .tables import ACCESS_KEYS, ACCESS_STATE, CORDONS, DESIRED_STATE, SESSIONS
from .url import StoreUrl

CLOSE_TIMEOUT = 4.0
"""Maximum seconds to wait for the thread of a failed connection."""

_NEWEST_CORDONS = (
    select(CORDONS).order_by(CORDONS.c.since.desc(), CORDONS.c.agent).limit(MAX_CORDONS)
)


class Store:
    """The desired state, access keys, sessions and cordons.

    Parts store the rest in the same database.

    Every method but `close` raises `StoreAway`. When a method returns, its change is written.
    Unless the store is in memory, the change survives a crash of any process.
    """

    def __init__(self, url: StoreUrl) -> None:
        """Make a store. `open_store` must open the store unless it is in memory."""
        self.database = Database(url)
        self.history = HistoryStore(self.database)
        self.jobs = JobStore(self.database)
        self.retained = RetainedStore(self.database)
        self.conversations = SavedConversations(self.database)
        self.diary = DiaryStore(self.database)

    @property
    def is_lasting(self) -> bool:
        """Whether the content survives a restart of the balancer."""
        return self.database.is_lasting

    async def open(self) -> None:
        """Connect, and bring the tables to this version. Raises `StoreAway` or `StoreRefused`."""
        if self.is_lasting:
            from .migrate import migrate  # it takes a fifth of a second to import

            async with self.database.transaction() as connection:
                await connection.run_sync(migrate)

    async def close(self) -> None:
        """Close files and connections."""
        await self.database.close()

    # ---- the desired state

    async def load_desired_state(self) -> SavedState | None:
        """Return the desired state, if any was saved."""
        async with self.database.transaction() as connection:
            return await _saved(connection)

    async def save_desired_state(self, persist: Persist) -> None:
        """Save the desired state. Raises `RevisionConflict`.

        The call may be repeated, such as after a lost answer. If several writers save the same
        revision, exactly one succeeds.
        """
        revision = persist.expected + 1
        async with self.database.transaction() as connection:
            result = await connection.execute(
                update(DESIRED_STATE)
                .where(DESIRED_STATE.c.revision == persist.expected)
                .values(revision=revision, document=persist.document)
            )
            if result.rowcount == 1:
                await notify_changed(connection, "desired_state")
                return
            saved = await _saved(connection)
        if saved != SavedState(revision, persist.document):
            raise RevisionConflict(saved)

    # ---- access keys

    async def load_keys(self) -> list[SavedKey]:
        """Return all keys, by name."""
        async with self.database.transaction() as connection:
            rows = (await connection.execute(select(ACCESS_KEYS))).mappings().all()
        # Sorted here, since databases have orders of their own.
        return sorted((SavedKey(**row) for row in rows), key=lambda key: key.name)

    async def save_key(self, key: SavedKey) -> None:
        """Add revision 1, or replace the previous revision. Raises `KeyConflict`.

        The call may be repeated, such as after a lost answer.
        """
        async with self.database.transaction() as connection:
            save = _is_added if key.revision == 1 else _is_replaced
            if not await save(connection, key):
                current = await _current(connection, key.name)
                if current != key:
                    raise KeyConflict(current)
            await connection.execute(update(ACCESS_STATE).values(had_keys=True))
            await notify_changed(connection, "keys")

    async def forget_key(self, name: str, revision: int) -> None:
        """Delete a key with this revision, if any. Raises `KeyConflict` for another revision."""
        chosen = (ACCESS_KEYS.c.name == name) & (ACCESS_KEYS.c.revision == revision)
        async with self.database.transaction() as connection:
            result = await connection.execute(delete(ACCESS_KEYS).where(chosen))
            if result.rowcount == 0 and (current := await _current(connection, name)) is not None:
                raise KeyConflict(current)
            await notify_changed(connection, "keys")

    async def had_keys(self) -> bool:
        """Return whether a key ever existed; true if this is unknown."""
        async with self.database.transaction() as connection:
            return (await connection.execute(select(ACCESS_STATE.c.had_keys))).scalar() is not False

    async def note_keys(self, *, had_keys: bool) -> None:
        """Record whether a key ever existed."""
        async with self.database.transaction() as connection:
            await connection.execute(update(ACCESS_STATE).values(had_keys=had_keys))

    # ---- logins

    async def load_sessions(self) -> list[SavedSession]:
        """Return all sessions, including expired ones."""
        async with self.database.transaction() as connection:
            rows = (await connection.execute(select(SESSIONS))).mappings().all()
        return [SavedSession(**row) for row in rows]

    async def save_session(self, session: SavedSession, now: float) -> None:
        """Add a session, and delete sessions that have expired by `now`."""
        async with self.database.transaction() as connection:
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at <= now))
            await connection.execute(insert(SESSIONS).values(**asdict(session)))
            await notify_changed(connection, "sessions")

    async def forget_sessions(self, ids: Sequence[str]) -> None:
        """Delete sessions, if they exist."""
        async with self.database.transaction() as connection:
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.id.in_(ids)))
            await notify_changed(connection, "sessions")

    # ---- cordons

    async def load_cordons(self) -> list[SavedCordon]:
        """Return at most `MAX_CORDONS` cordons, oldest first."""
        async with self.database.transaction() as connection:
            rows = (await connection.execute(_NEWEST_CORDONS)).mappings().all()
        return [SavedCordon(**row) for row in reversed(rows)]

    async def save_cordon(self, cordon: SavedCordon) -> None:
        """Add a cordon, or replace the cordon of the same agent."""
        agent, name = storable_text(cordon.agent), storable_text(cordon.name)
        values = {"agent": agent, "name": name, "since": cordon.since, "deadline": cordon.deadline}
        newest = select(_NEWEST_CORDONS.subquery().c.agent)
        async with self.database.transaction() as connection:
            await connection.execute(delete(CORDONS).where(CORDONS.c.agent == agent))
            await connection.execute(insert(CORDONS).values(**values))
            await connection.execute(delete(CORDONS).where(CORDONS.c.agent.not_in(newest)))
            await notify_changed(connection, "cordons")

    async def forget_cordon(self, agent: str) -> None:
        """Delete a cordon, if it exists."""
        async with self.database.transaction() as connection:
            await connection.execute(delete(CORDONS).where(CORDONS.c.agent == storable_text(agent)))
            await notify_changed(connection, "cordons")


async def _saved(connection: AsyncConnection) -> SavedState | None:
    query = select(DESIRED_STATE.c.revision, DESIRED_STATE.c.document)
    row = (await connection.execute(query)).one()
    return SavedState(row.revision, row.document) if row.revision else None


async def _is_added(connection: AsyncConnection, key: SavedKey) -> bool:
    """Insert a key. Returns false if the name exists.

    If two transactions insert the same name at once, the second waits and returns false.
    """
    try:
        async with connection.begin_nested():
            await connection.execute(insert(ACCESS_KEYS).values(**asdict(key)))
    except IntegrityError:
        return False
    return True


async def _is_replaced(connection: AsyncConnection, key: SavedKey) -> bool:
    replaced = (ACCESS_KEYS.c.name == key.name) & (ACCESS_KEYS.c.revision == key.revision - 1)
    result = await connection.execute(update(ACCESS_KEYS).where(replaced).values(**asdict(key)))
    return result.rowcount == 1


async def _current(connection: AsyncConnection, name: str) -> SavedKey | None:
    query = select(ACCESS_KEYS).where(ACCESS_KEYS.c.name == name)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else SavedKey(**row)


# ---- opening


async def open_store(url: StoreUrl) -> Store:
    """Open a store, and bring its tables to this version.

    Raises `StoreRefused` with one sentence.
    """
    if url.kind == "sqlite":
        _require_file(Path(url.location))
    elif url.kind == "postgresql" and find_spec("asyncpg") is None:
        raise StoreRefused(
            "PostgreSQL needs one more package: in Arriero's checkout, pip install '.[postgresql]'"
        )
    store = Store(url)
    threads = set(threading.enumerate())
    try:
        await store.open()
    except (StoreAway, StoreRefused) as error:
        await store.close()
        await _ended(set(threading.enumerate()) - threads)
        raise StoreRefused(f"cannot use {url}: {error}") from error
    return store


async def _ended(threads: set[threading.Thread]) -> None:
    """Wait for the threads of connections that could not be opened.

    Without this, a balancer that cannot start could end with the traceback of such a thread.
    """
    for thread in threads:
        if "_connection_worker" in thread.name:  # aiosqlite's
            await asyncio.to_thread(thread.join, CLOSE_TIMEOUT)


def _require_file(path: Path) -> None:
    """Check the path of an SQLite file, because SQLite has one message for all problems."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreRefused(f"there is no folder {folder}; make it first")
    if path.is_dir():
        raise StoreRefused(f"{path} is a folder; name a file in it")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(f"{path}: {os.strerror(errno.EACCES).lower()}; it must be writable")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreRefused(f"{folder}: {os.strerror(errno.EACCES).lower()}; it must be writable")
