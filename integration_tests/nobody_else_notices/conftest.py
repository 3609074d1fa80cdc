"""A fleet on which a stream outlasts any test."""

import pytest

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet


@pytest.fixture
async def serving(fleet: Fleet) -> Fleet:
    """One balancer, one agent with four slots."""
    await fleet.start_balancer()
    await fleet.start_agent(context_size=LONG_CONTEXT)
    return fleet
