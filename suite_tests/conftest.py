"""Fixtures for suites of others that run unmodified against real daemons: `make test-suites`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from client_tests.program import DEADLINE
from integration_tests.daemons import MODEL, Fleet, until
from integration_tests.installed import real_model
from suite_tests.harness import ALIASES, DEMO, SMOLLM2

CONTEXT_SIZE = 8192


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def serving() -> AsyncIterator[Fleet]:
    """A balancer and an agent that serves SmolLM2 and the demo model, for all suites."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(first_token_timeout=DEADLINE)
        await fleet.start_agent(
            model=None, slots=None, context_size=None, threads=None, models_max=len(ALIASES)
        )
        files = {SMOLLM2: real_model("smollm2"), DEMO: MODEL.absolute()}
        desired = [
            {"name": name, "source": path.as_uri(), "aliases": ALIASES[name], "slots": 4}
            | {"context_size": CONTEXT_SIZE}
            for name, path in files.items()
        ]
        url = f"{fleet.management}/api/v1/desired-state"
        async with fleet.http.put(url, json={"models": desired}) as response:
            assert response.status == 200, await response.text()

        async def is_served() -> bool:
            [agent] = await fleet.view("agents")
            return {each["state"] for each in agent["models"]} == {"ready"}

        await until(is_served)
        yield fleet
