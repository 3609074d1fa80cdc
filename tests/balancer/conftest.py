"""Asynchronous tests of the balancer wait seconds at most, so a timer that comes late is seen."""

import inspect
from pathlib import Path

import pytest

LONGEST = 8
"""Seconds. The slowest needs about one, what they wait for comes within milliseconds."""

WITH_DATABASE = 30
"""Seconds. These wait for a server's processes and disks, which a busy machine has little for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        test = getattr(item, "function", None)
        if item.path.is_relative_to(here) and inspect.iscoroutinefunction(test):
            item.add_marker(pytest.mark.timeout(_longest(item)))


def _longest(item: pytest.Item) -> int:
    is_stored = item.path.is_relative_to(Path(__file__).parent / "store")
    return WITH_DATABASE if is_stored or "postgres" in item.fixturenames else LONGEST
