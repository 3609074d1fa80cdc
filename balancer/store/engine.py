"""SQLAlchemy's engines for both databases, and their errors as ours.

SQLite: one connection, WAL, every transaction takes the write lock as it begins. What it confirms
is on the disk, in the file that its path names: `DatabaseFile` sees to that.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from .port import StoreAway
from .url import StoreUrl

CONNECT_TIMEOUT = 4.0
"""Seconds to connect, to wait for a lock, and for one statement."""

_FAULTS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
"""Faults of a statement or of its values, which no retry mends."""

_FAULTY_STATES = ("22", "23", "42", "54")
"""Classes of PostgreSQL's SQLSTATE that are the same: of values, constraints, names and sizes."""


class DatabaseFile:
    """SQLite's file: the one that was opened is the only one that may be read and written.

    SQLite itself goes on in a file that was deleted, as if nothing were, and makes another one for
    its next connection. A thread of its own looks, since a disk may take its time.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database-file")
        self._opened: tuple[int, int] | None = None

    async def check(self) -> None:
        """The first time, the file is opened, and made where there is none.

        Later, raises `StoreAway` unless the path names that file.
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
        """Look no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _on_thread(self, look: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, look)

    def _made(self) -> tuple[int, int]:
        # One that is there is not opened: to close it would end this process's locks on it.
        try:
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return self._identity()
        except OSError as error:
            raise StoreAway(f"unable to open database file: {error.strerror}") from error

    def _identity(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino


def engine_of(url: StoreUrl) -> AsyncEngine:
    """An engine that has not connected yet. SQLite's makes no file: `DatabaseFile` does."""
    return _sqlite(url) if url.kind == "sqlite" else _postgresql(url)


@contextmanager
def reached(url: StoreUrl) -> Iterator[None]:
    """What says inside that the store cannot be reached or written becomes `StoreAway`.

    Faults of a statement or of its values stay what they are: to try them again would be in vain.
    """
    try:
        yield
    except (DBAPIError, PoolTimeout, OSError) as error:
        if isinstance(error, DBAPIError) and _is_fault(error):
            raise
        raise StoreAway(sentence(error, url)) from error


def _is_fault(error: DBAPIError) -> bool:
    """SQLAlchemy has one class for most of what asyncpg says, whose own errors tell more.

    A value that asyncpg cannot even send is a `ValueError` to it, and has no SQLSTATE.
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    unsendable = isinstance(getattr(error.orig, "__cause__", None), ValueError)
    return isinstance(error, _FAULTS) or unsendable or state[:2] in _FAULTY_STATES


def sentence(error: BaseException, url: StoreUrl) -> str:
    """What a driver says, in one line, and without the password."""
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    said = lines[0].rpartition("<class ")[2].partition(">: ")[2] or lines[0] if lines else ""
    if url.password:
        said = said.replace(url.password, "***")
    return said or type(original).__name__


def _sqlite(url: StoreUrl) -> AsyncEngine:
    engine = create_async_engine(
        URL.create(
            "sqlite+aiosqlite",
            database=f"file:{quote(str(Path(url.location).absolute()))}",
            query={"mode": "rw", "uri": "true"},
        ),
        pool_size=1,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT,
        connect_args={"timeout": CONNECT_TIMEOUT},
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    try:
        connection.isolation_level = None  # the driver begins no transaction of its own
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()
    except BaseException:
        connection.close()  # nobody else does, and its thread would stay
        raise


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
