"""SQLAlchemy's engines for both databases, and their errors as ours.

SQLite: one connection, WAL, every transaction takes the write lock as it begins. What it confirms
is on the disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
"""Faults of a statement, which no retry mends."""


def engine_of(url: StoreUrl) -> AsyncEngine:
    """An engine that has not connected yet."""
    return _sqlite(url) if url.kind == "sqlite" else _postgresql(url)


@contextmanager
def reached(url: StoreUrl) -> Iterator[None]:
    """What says inside that the store cannot be reached or written becomes `StoreAway`."""
    try:
        yield
    except _FAULTS:
        raise
    except (DBAPIError, PoolTimeout, OSError) as error:
        raise StoreAway(sentence(error, url)) from error


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
        URL.create("sqlite+aiosqlite", database=str(Path(url.location).absolute())),
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
