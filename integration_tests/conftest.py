"""Fixtures for tests against the real daemons and the demo model."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from integration_tests.daemons import Fleet
from integration_tests.dashboard import dashboard

__all__ = ["dashboard"]

# Daemons start over a hundred times; what the first one compiles serves the others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_fleet() -> AsyncIterator[Fleet]:
    """A balancer and an agent for all tests of a module, which leave them as they are."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(context_size=2048)
        yield fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet with nothing started yet; whatever the test starts is ended after it."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        yield fleet
