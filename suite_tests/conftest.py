"""Fixtures for suites of others that run unmodified against real daemons: `make test-suites`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from client_tests.program import DEADLINE
from integration_tests.daemons import Fleet


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def serving() -> AsyncIterator[Fleet]:
    """A balancer and an agent on the demo model, for all suites."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=DEADLINE)
        await fleet.start_agent(context_size=8192, threads=2)
        yield fleet
