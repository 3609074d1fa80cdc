"""Every store that there is, each empty."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from arriero.balancer.store.store import Store
from arriero.balancer.store.url import parse_store_url

from .postgres import PostgresServer

OpenStore = Callable[[], Awaitable[Store]]
"""Opens one store once more: the same data, seen by another balancer."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    return database(request.param, request, tmp_path)


@pytest.fixture
async def opened_sql(url: str) -> AsyncIterator[OpenStore]:
    """Opens a store that lasts; at first it is empty."""
    async with opening(url) as again:
        yield again


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens any store; at first it is empty."""
    async with opening(database(request.param, request, tmp_path)) as again:
        yield again


def database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        (folder / "state.db").touch()
        return f"sqlite:///{folder}/state.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@asynccontextmanager
async def opening(url: str) -> AsyncIterator[OpenStore]:
    async with AsyncExitStack() as stores:
        at = parse_store_url(url)
        in_memory: Store | None = None

        async def again() -> Store:
            nonlocal in_memory
            if in_memory is not None:
                return in_memory  # a second one would be another
            store = Store(at)
            stores.push_async_callback(store.close)
            await store.open()
            in_memory = store if at.kind == "memory" else None
            return store

        yield again
