"""Every store that there is, each empty."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from arriero.balancer.store.memory import MemoryStore
from arriero.balancer.store.port import CordonStore, KeyStore, Store
from arriero.balancer.store.sql import SqlStore
from arriero.balancer.store.url import parse_store_url

from .postgres import PostgresServer

Open = Callable[[], Awaitable[Store]]
"""Opens one store once more: the same data, seen by another balancer."""

OpenKeys = Callable[[], Awaitable[KeyStore]]
"""The same, of its keys."""

OpenCordons = Callable[[], Awaitable[CordonStore]]
"""The same, of cordons."""

OpenSql = Callable[[], Awaitable[SqlStore]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; who stops it has to start it again."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    return database(request.param, request, tmp_path)


@pytest.fixture
async def opened_sql(url: str) -> AsyncIterator[OpenSql]:
    """Opens a store with a history; at first it is empty."""
    async with opening(url) as again:
        yield again


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens a store; at first it is empty."""
    async with opening_any(request, tmp_path) as again:
        yield again


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def opened_keys(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenKeys]:
    """Opens a store of keys; at first it is empty."""
    async with opening_any(request, tmp_path) as again:
        yield again


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def opened_cordons(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenCordons]:
    """Opens a store of cordons; at first it is empty."""
    async with opening_any(request, tmp_path) as again:
        yield again


@asynccontextmanager
async def opening_any(
    request: pytest.FixtureRequest, folder: Path
) -> AsyncIterator[Callable[[], Awaitable[MemoryStore | SqlStore]]]:
    if request.param != "memory":
        async with opening(database(request.param, request, folder)) as again:
            yield again
        return
    store = MemoryStore()

    async def same() -> MemoryStore:
        return store

    yield same


def database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        (folder / "state.db").touch()
        return f"sqlite:///{folder}/state.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@asynccontextmanager
async def opening(url: str) -> AsyncIterator[OpenSql]:
    async with AsyncExitStack() as stores:

        async def again() -> SqlStore:
            store = SqlStore(parse_store_url(url))
            stores.push_async_callback(store.close)
            await store.open()
            return store

        yield again
