"""What an agent and its fetching process say to each other."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from arriero.agent.models.fetch_protocol import (
    FETCH_ORDERS,
    FETCH_REPORTS,
    Arriving,
    Fetched,
    FetchOrder,
    FetchReport,
    Refused,
)

REPORTS: list[FetchReport] = [
    Arriving(file="m\n.gguf", bytes=1, total=None),
    Fetched(paths=(Path("/m/a.gguf"),), kept=(), bytes=3),
    Refused(code="gated", message="no", hint="set HF_TOKEN"),
]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_one_line(report: FetchReport) -> None:
    line = FETCH_REPORTS.encode(report)
    assert line.count(b"\n") == 1
    assert FETCH_REPORTS.decode(line) == report


def test_an_order_is_one_line() -> None:
    fetch = FetchOrder(source="hf://a/b:Q4_0", sha256="a" * 64, root=Path("/models"), limit=5)
    assert FETCH_ORDERS.decode(FETCH_ORDERS.encode(fetch)) == fetch


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ValidationError):
        FETCH_REPORTS.decode(b'{"type": "refused", "code": "odd", "message": "m"}')
