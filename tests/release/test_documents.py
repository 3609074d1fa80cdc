"""What both ports promise today, beside what was frozen."""

from pathlib import Path

import pytest

from release import changelog, documents
from release.breaking import breaking_changes
from tests.balancer import documents as today

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("port", documents.PORTS)
def test_no_promise_is_broken_without_a_word(port: str) -> None:
    """Under *Changed* in CHANGELOG.md stands `METHOD /path` of each operation that broke one."""
    document = getattr(today, port)()
    changes = breaking_changes(documents.frozen(port), document)
    assert [each for each in changes if not changelog.excuses(CHANGELOG, each)] == []
