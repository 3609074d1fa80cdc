"""Stores of tests are not given up because a machine was busy, and are closed at the end."""

from collections.abc import AsyncIterator, Iterator

import pytest

from arriero.balancer import persistence
from arriero.balancer.management.steering import desired_state_service
from arriero.balancer.store import database, write_behind
from tests.balancer.store.postgres import PostgresServer
from tests.balancer.stores import close_all
from tests.waiting import HANGS


@pytest.fixture(autouse=True)
def stores_have_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "CONNECT_TIMEOUT", HANGS)
        patched.setattr(persistence, "LAST_WRITES", HANGS)
        patched.setattr(write_behind, "TRY_TIMEOUT", HANGS)
        patched.setattr(desired_state_service, "SAVE_TIMEOUT", HANGS)
        yield


@pytest.fixture
async def closes_stores() -> AsyncIterator[None]:
    """For tests that make a `MemoryStore`."""
    yield
    await close_all()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; who stops it has to start it again."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()
