"""Asynchronous tests of the balancer wait seconds at most, so a timer that comes late is seen."""

import inspect
from pathlib import Path

import pytest

LONGEST = 8
"""Seconds. The slowest needs about one, what they wait for comes within milliseconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        test = getattr(item, "function", None)
        if item.path.is_relative_to(here) and inspect.iscoroutinefunction(test):
            item.add_marker(pytest.mark.timeout(LONGEST))
