"""Fixtures for tests against the real daemons and the demo model."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from integration_tests.daemons import Fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet with nothing started yet; whatever the test starts is ended after it."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        yield fleet
