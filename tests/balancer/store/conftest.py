"""Every store that there is, each empty.

Databases are migrated once: a test of SQLite gets a copy of the file, and tests of PostgreSQL share
a database that is emptied before each.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from arriero.balancer.store.store import Store
from arriero.balancer.store.tables import FIRST_ROWS, METADATA
from arriero.balancer.store.url import parse_store_url

from .postgres import PostgresServer

OpenStore = Callable[[], Awaitable[Store]]
"""Opens one store once more: the same data, seen by another balancer."""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        (tmp_path / "state.db").touch()
        return f"sqlite:///{tmp_path}/state.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
async def opened_empty(empty_url: str) -> AsyncIterator[OpenStore]:
    """Opens a store that lasts. Who opens it first makes its tables."""
    async with opening(empty_url, has_tables=False) as again:
        yield again


@pytest.fixture(scope="session")
def sqlite_with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied."""
    path = tmp_path_factory.mktemp("migrated") / "state.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_with_tables(postgres: PostgresServer) -> str:
    """The URL of a database that tests share."""
    url = postgres.database()
    migrate(url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with tables; the first store that is opened finds them empty."""
    return with_tables(request.param, request, tmp_path)


@pytest.fixture
async def opened_sql(url: str) -> AsyncIterator[OpenStore]:
    """Opens a store that lasts; at first it is empty."""
    async with opening(url) as again:
        yield again


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens any store; at first it is empty."""
    async with opening(with_tables(request.param, request, tmp_path)) as again:
        yield again


def with_tables(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_with_tables"), folder / "state.db")
        return f"sqlite:///{folder}/state.db"
    url: str = request.getfixturevalue("postgres_with_tables")
    return url


def migrate(url: str) -> None:
    """Make the tables, in a thread: fixtures of a session may be made while a loop runs."""

    async def open_and_close() -> None:
        store = Store(parse_store_url(url))
        await store.open()
        await store.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, open_and_close()).result()


async def empty(store: Store) -> None:
    """Leave the rows that tables have from the beginning."""
    async with store.database.transaction() as connection:
        names = ", ".join(table.name for table in METADATA.sorted_tables)
        await connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        for table, row in FIRST_ROWS:
            await connection.execute(table.insert().values(**row))


@asynccontextmanager
async def opening(url: str, *, has_tables: bool = True) -> AsyncIterator[OpenStore]:
    """Opens stores; the first one makes the tables unless the database `has_tables`."""
    async with AsyncExitStack() as stores:
        at = parse_store_url(url)
        in_memory: Store | None = None
        is_first = True

        async def again() -> Store:
            nonlocal in_memory, is_first
            if in_memory is not None:
                return in_memory  # a second one would be another
            store = Store(at)
            stores.push_async_callback(store.close)
            if not has_tables:
                await store.open()
            elif at.kind == "postgresql" and is_first:
                await empty(store)
            is_first = False
            in_memory = store if at.kind == "memory" else None
            return store

        yield again
