"""Every store that there is, each empty."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from arriero.balancer.store.memory import MemoryStore
from arriero.balancer.store.port import Store

Open = Callable[[], Awaitable[Store]]
"""Opens one store once more: the same data, seen by another balancer."""


@pytest.fixture(params=["memory"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    store = MemoryStore()

    async def again() -> Store:
        return store

    yield again
