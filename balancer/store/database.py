"""A database over SQLAlchemy, with its transactions. Errors become errors of the store.

SQLite has one connection in WAL mode, and every transaction takes the write lock at its beginning.
Confirmed changes are on disk, in the file at the path: `DatabaseFile` ensures this. With
`memory://` the database is in memory, and ends with the process.
"""

import asyncio
import os
import sqlite3
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode

import aiosqlite
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    StaticPool,
    Table,
    create_engine,
    event,
    literal_column,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry
from sqlalchemy.util import await_only

from ..cluster.notifications import Changed, Subject, encoded
from .port import StoreAway
from .tables import FIRST_ROWS, METADATA
from .url import StoreUrl

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

CONNECT_TIMEOUT = 4.0
"""Maximum seconds to connect, to wait for a lock, and for one statement."""

_MODE_PAUSE = 0.05
"""Seconds between tries to change the mode of a new database."""

AnyInsert: TypeAlias = "sqlite.Insert | postgresql.Insert"

_FAULTS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
"""Errors caused by a statement or its values. A retry does not help."""

_FAULTY_STATES = ("22", "23", "42", "54")
"""Classes of PostgreSQL's SQLSTATE with the same meaning: values, constraints, names and sizes."""


class DatabaseFile:
    """The file of SQLite. Only the file that was opened first may be read and written.

    SQLite itself continues in a deleted file without an error, and creates a new file for the next
    connection. A thread checks the path, because a disk may be slow.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database-file")
        self._opened: tuple[int, int] | None = None

    async def check(self) -> None:
        """Check that the path still leads to the same file. Raises `StoreAway`.

        The first call creates the file if the file is missing.
        """
        if self._opened is None:
            self._opened = await self._on_thread(self._made)
            return
        try:
            found = await self._on_thread(self._identity)
        except FileNotFoundError as error:
            raise StoreAway(
                f"the database file {self._path.name} is gone; move it back, "
                "or restart the balancer with a backup of it"
            ) from error
        except OSError as error:
            raise StoreAway(f"unable to look at the database file: {error.strerror}") from error
        if found != self._opened:
            raise StoreAway(
                f"the database file {self._path.name} was replaced by another one; "
                "restart the balancer to use that"
            )

    def close(self) -> None:
        """Stop checking."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _on_thread(self, look: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, look)

    def _made(self) -> tuple[int, int]:
        # One that is there is not opened: to close it would end this process's locks on it.
        try:
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return self._identity()
        except OSError as error:
            raise StoreAway(f"unable to open database file: {error.strerror}") from error

    def _identity(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino


def engine_of(url: StoreUrl) -> AsyncEngine:
    """Return an engine that is not connected yet.

    The engine creates no SQLite file, because `DatabaseFile` creates the file.
    """
    if url.kind == "postgresql":
        return _postgresql(url)
    return _sqlite(str(Path(url.location).absolute()), mode="rw")


class DatabaseInMemory:
    """SQLite's database of `memory://`, which exists as long as this object holds a connection.

    Other connections come and go: a connection left behind by a cancelled task is not used again.
    A connection waits while another one writes, as with a file. With SQLite's shared cache it
    would not wait.
    """

    def __init__(self) -> None:
        self._name = f"/arriero-{uuid.uuid4().hex}"  # the slash lets several connections have it
        uri = f"file:{self._name}?vfs=memdb"
        self._holder = sqlite3.connect(uri, uri=True, check_same_thread=False)
        weakref.finalize(self, self._holder.close)
        engine = create_engine("sqlite://", creator=lambda: self._holder, poolclass=StaticPool)
        with engine.begin() as connection:
            METADATA.create_all(connection)
            for table, row in FIRST_ROWS:
                connection.execute(table.insert().values(**row))

    def engine(self) -> AsyncEngine:
        """Return an engine that connects to the database."""
        return _sqlite(self._name, vfs="memdb")

    def close(self) -> None:
        """Delete the database, unless another connection is still open."""
        self._holder.close()


def _to_nobody(_notifications: Sequence[Changed]) -> None:
    """Notify nobody, because there is only one balancer."""


class Database:
    """The database at `url`. A database in memory is ready; any other must be migrated first."""

    def __init__(self, url: StoreUrl) -> None:
        self._url = url
        self._file = DatabaseFile(url.location) if url.kind == "sqlite" else None
        self._memory = DatabaseInMemory() if url.kind == "memory" else None
        self._engine = engine_of(url) if self._memory is None else self._memory.engine()
        self._is_closed = False
        event.listen(self._engine.sync_engine, "checkin", self._on_returned)
        self.is_postgresql = url.kind == "postgresql"
        self.is_lasting = self._memory is None
        """Whether the content survives a restart of the balancer."""
        self.on_notifications: Callable[[Sequence[Changed]], None] = _to_nobody
        """Called with a transaction's notifications if the database cannot send them itself."""

    @property
    def now(self) -> ColumnElement[float]:
        """Return seconds since 1970 by the database's clock, to about a millisecond.

        PostgreSQL uses the server's clock, and SQLite uses the clock of this host.
        """
        return _CLOCKS[self.is_postgresql]

    def insert(self, table: Table) -> AnyInsert:
        """Return an insert that supports rules for existing rows."""
        if not self.is_postgresql:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # late: it is one part in 25 of a start

        return postgresql.insert(table)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Return a context in which all or nothing is written. Raises `StoreAway`.

        The file is checked before and after. So nothing is read from another file, and nothing
        that was written to another file is confirmed.
        """
        with reached(self._url):
            await self._check_file()
            async with self._engine.begin() as connection:
                take_unsent(connection)  # of a transaction that was rolled back
                yield connection
                notifications = take_unsent(connection)
            await self._check_file()
        if notifications:
            self.on_notifications(notifications)

    async def close(self) -> None:
        """Close files and connections.

        A connection in a transaction is closed when the transaction ends.
        """
        self._is_closed = True
        await self._engine.dispose()
        if self._file is not None:
            self._file.close()
        if self._memory is not None:
            self._memory.close()

    def _on_returned(self, _connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        """Close a connection that returns to the pool after the pool was closed."""
        if self._is_closed:
            record.invalidate()

    async def _check_file(self) -> None:
        if self._file is not None:
            await self._file.check()


_CLOCKS: dict[bool, ColumnElement[float]] = {
    False: literal_column("(julianday('now') - 2440587.5) * 86400.0"),
    True: literal_column("extract(epoch FROM clock_timestamp())::double precision"),
}


@contextmanager
def reached(url: StoreUrl) -> Iterator[None]:
    """Return a context that turns errors of an unreachable store into `StoreAway`.

    Errors caused by a statement or its values stay as they are, because a retry does not help.
    """
    try:
        yield
    except (DBAPIError, PoolTimeout, OSError) as error:
        if isinstance(error, DBAPIError) and _is_fault(error):
            raise
        raise StoreAway(sentence(error, url)) from error


def _is_fault(error: DBAPIError) -> bool:
    """Return whether the statement or its values caused the error.

    SQLAlchemy has one class for most errors of asyncpg, so the function checks asyncpg's own
    error. If asyncpg cannot send a value, its error is a `ValueError` without an SQLSTATE.
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    unsendable = isinstance(getattr(error.orig, "__cause__", None), ValueError)
    return isinstance(error, _FAULTS) or unsendable or state[:2] in _FAULTY_STATES


def sentence(error: BaseException, url: StoreUrl) -> str:
    """Return a driver's message on one line, without the password."""
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    said = lines[0].rpartition("<class ")[2].partition(">: ")[2] or lines[0] if lines else ""
    if url.password:
        said = said.replace(url.password, "***")
    return said or type(original).__name__


class _SqliteFile(sqlite3.Connection):
    """A connection that holds no locks after its end.

    SQLite holds locks while a cursor exists. A cursor that a cancelled task left behind exists
    until garbage collection.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri, uri=True, timeout=CONNECT_TIMEOUT)
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        """Return a cursor that ends with the connection."""
        cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        """Close the connection and its cursors."""
        with suppress(sqlite3.ProgrammingError):  # it is closed
            for cursor in tuple(self._cursors):
                cursor.close()
        super().close()


class _SqliteConnection(aiosqlite.Connection):
    """A connection that is always closed when stopped, and is stopped only once.

    The parent class does not ensure this if a task is cancelled twice.
    """

    def __init__(self, uri: str) -> None:
        self._file: _SqliteFile | None = None
        self._stopped: asyncio.Future[object] | None = None

        def connect() -> _SqliteFile:
            self._file = _SqliteFile(uri)
            return self._file

        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True

    def stop(self) -> asyncio.Future[object] | None:
        """Close the connection after its last statement.

        The thread of the connection then ends.
        """
        if self._stopped is None:
            self._tx.put_nowait((None, self._close_file))
            self._stopped = super().stop()
        return self._stopped

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()


def _sqlite(name: str, **query: str) -> AsyncEngine:
    """Return an engine. `query` has the parameters of SQLite's URI."""
    uri = f"file:{quote(name)}?{urlencode(query)}"

    async def connect() -> aiosqlite.Connection:
        return await _SqliteConnection(uri)

    engine = create_async_engine(
        "sqlite+aiosqlite://",
        async_creator=connect,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT,
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    try:
        connection.isolation_level = None  # the driver begins no transaction of its own
        cursor = connection.cursor()
        _write_ahead(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()
    except BaseException:
        connection.close()  # nothing else does, and its thread would stay
        raise


def _write_ahead(cursor: DBAPICursor) -> None:
    """Turn on WAL mode.

    SQLite does not wait for other processes that change a new database's mode at the same time.
    """
    tries = int(CONNECT_TIMEOUT / _MODE_PAUSE)
    for remaining in range(tries, -1, -1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not remaining:
                raise
        await_only(asyncio.sleep(_MODE_PAUSE))


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _postgresql(url: StoreUrl) -> AsyncEngine:
    arguments: dict[str, object] = {"timeout": CONNECT_TIMEOUT, "command_timeout": CONNECT_TIMEOUT}
    if url.ssl_mode is not None:
        arguments["ssl"] = url.ssl_mode
    if url.host is not None and url.host.startswith("/"):
        arguments["host"] = url.host
    address = URL.create(
        "postgresql+asyncpg",
        username=url.user,
        password=url.password,
        host=None if "host" in arguments else url.host,
        port=url.port,
        database=url.database,
    )
    return create_async_engine(
        address,
        pool_size=2,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT,
        pool_pre_ping=True,
        connect_args=arguments,
    )


CHANNEL = "arriero"
"""The channel of `NOTIFY`. PostgreSQL keeps the channels of different databases apart."""

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


_UNSENT = "arriero_unsent_notifications"
"""The key in a connection's `info` of notifications to send after the transaction."""


async def notify_changed(connection: AsyncConnection, what: Subject) -> None:
    """Tell all balancers to read `what` again after the transaction.

    SQLite sends no notifications. The code that ends the transaction sends the result of
    `take_unsent` instead.
    """
    changed = Changed(what)
    if connection.dialect.name == "postgresql":
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": encoded(changed)})
    else:
        connection.info.setdefault(_UNSENT, []).append(changed)


def take_unsent(connection: AsyncConnection) -> list[Changed]:
    """Remove and return the notifications to send after the transaction."""
    notifications: list[Changed] = connection.info.pop(_UNSENT, [])
    return notifications
