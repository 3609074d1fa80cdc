"""Fixtures for tests that run real clients against real daemons: `make test-clients`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from client_tests.outside import Outside
from client_tests.program import DEADLINE, Desk
from client_tests.recorder import Recorder
from integration_tests.daemons import Fleet

CONTEXT_SIZE = 32_768
"""Tokens. Claude Code's first prompt has 20,000 of the demo model's, Codex's 15,000."""

LONGEST_TEST = 2 * DEADLINE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving() -> AsyncIterator[Fleet]:
    """A balancer and an agent for all tests of a module, with room for clients' prompts."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        # A busy machine takes minutes for the longest prompts.
        await fleet.start_balancer(first_token_timeout=DEADLINE)
        await fleet.start_agent(context_size=CONTEXT_SIZE, slots=2, threads=2)
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside() -> AsyncIterator[Outside]:
    """What clients get in place of the internet."""
    proxy = Outside()
    await proxy.start()
    yield proxy
    await proxy.close()


@pytest_asyncio.fixture(loop_scope="module")
async def arriero(serving: Fleet) -> AsyncIterator[Recorder]:
    """The fleet's inference port, seen through a recorder of the test's own."""
    recorder = Recorder(serving.inference)
    await recorder.start()
    yield recorder
    await recorder.close()


@pytest.fixture
def desk(tmp_path: Path, arriero: Recorder, outside: Outside) -> Desk:
    """A home and a repository for a client."""
    return Desk(tmp_path, arriero, outside)
