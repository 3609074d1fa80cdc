"""Fixtures for tests against the real daemons and the demo model.

A balancer and an agent take a second of a core to start. So tests that leave them as they are
share them with all others of the process, whichever file they are in; those tests run on one event
loop, `loop_scope="session"`. A test that stops daemons, gives them settings of its own or fills
their state takes `fleet`.
"""

import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack
from importlib.util import find_spec

import pytest
import pytest_asyncio

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet
from integration_tests.shared_fleets import SharedFleets

# Machines that only compute have no Playwright; pytest finds the fixtures of pages if it is there.
if find_spec("playwright"):
    from integration_tests.dashboard import browser, dashboard

    __all__ = ["browser", "dashboard"]

# Daemons start over a hundred times; what the first one compiles serves the others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the daemons of a test said last is shown where it fails."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        values = [getattr(value, "fleet", value) for value in item.funcargs.values()]
        fleets = [value for value in values if isinstance(value, Fleet)]
        said = [str(daemon) for fleet in fleets for daemon in fleet.daemons]
        report.sections += [("said by a daemon", text) for text in said]
    return report


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What daemons leave behind goes with pytest's own folders, and so do models they download."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setenv("ARRIERO_AGENT_MODELS_DIR", str(tmp_path_factory.mktemp("models")))
        yield


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet with nothing started yet; whatever the test starts is ended after it."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        yield fleet


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_fleet() -> AsyncIterator[Fleet]:
    """As `fleet`, for tests on the session's event loop."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        yield fleet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fleets() -> AsyncIterator[SharedFleets]:
    """The fleets that are shared; for fixtures that outlive a test."""
    async with AsyncExitStack() as stack:
        yield SharedFleets(stack)


@pytest_asyncio.fixture(loop_scope="session")
async def shared_fleet(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """Shared: a balancer and an agent, whose requests end early."""
    fleet = await fleets.with_agent(context_size=2048)
    yield fleet
    await fleet.let_go()
    await fleet.until_idle()


@pytest_asyncio.fixture(loop_scope="session")
async def long_fleet(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """Shared: the same, but a stream outlasts any test."""
    fleet = await fleets.with_agent(context_size=LONG_CONTEXT)
    yield fleet
    await fleet.let_go()
    await fleet.until_idle()


@pytest_asyncio.fixture(loop_scope="session")
async def small_fleet(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """Shared: the same, and with two slots it is full soon."""
    fleet = await fleets.with_agent(context_size=LONG_CONTEXT, slots=2)
    yield fleet
    await fleet.let_go()
    await fleet.until_idle()


@pytest_asyncio.fixture(loop_scope="session")
async def bare_fleet(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """A shared balancer without agents; those that the test starts are ended after it."""
    async with fleets.without_agents() as fleet:
        yield fleet
