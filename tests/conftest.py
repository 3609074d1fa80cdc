"""How property tests run: on machines of any speed, so never against the clock.

An ordinary run takes the same few examples each time, so that it judges the same code alike; a
change of a test draws other ones. `make search` draws many new ones, to look for what fails.
"""

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from arriero.shared.log import LineHandler
from arriero.shared.reports.log_tail import LogTail
from tests.waiting import HANGS

searching = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)
settings.register_profile("searching", searching)
settings.register_profile("repeatable", searching, derandomize=True, max_examples=12)
settings.load_profile("repeatable")

ASYNCHRONOUS_TIMEOUT = 2 * HANGS
"""Seconds. A wait inside a test ends before it, with a trace of what was waited for."""


SEARCHED = pytest.mark.skip(reason="`make search` runs it")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "thorough: costly, of what seldom changes; for `make search`"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A tighter limit for asynchronous tests in this folder that have none of their own."""
    here = Path(__file__).parent
    is_search = config.getoption("--hypothesis-profile") == "searching"
    for item in items:
        if not is_search and item.get_closest_marker("thorough"):
            item.add_marker(SEARCHED)
        if (
            isinstance(item, pytest.Function)
            and inspect.iscoroutinefunction(item.function)
            and here in item.path.parents
            and item.get_closest_marker("timeout") is None
        ):
            item.add_marker(pytest.mark.timeout(ASYNCHRONOUS_TIMEOUT))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """What a test sets up ends with it: it would write to whatever file gets its number next."""
    root, ours = logging.getLogger(), logging.getLogger("arriero")
    level, own_level = root.level, ours.level
    yield
    left = [each for each in root.handlers if isinstance(each, LineHandler | LogTail)]
    for handler in left:
        root.removeHandler(handler)
        handler.close()
    if left:
        root.setLevel(level)
        ours.setLevel(own_level)
        logging.captureWarnings(False)
