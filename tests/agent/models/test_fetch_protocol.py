"""What an agent and its fetching process say to each other."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from arriero.agent.models.fetch_protocol import (
    Arriving,
    Fetched,
    FetchOrder,
    FetchReport,
    Refused,
    decode_fetch,
    decode_fetch_report,
    encode_fetch,
    encode_fetch_report,
)

REPORTS: list[FetchReport] = [
    Arriving(file="m\n.gguf", bytes=1, total=None),
    Fetched(paths=(Path("/m/a.gguf"),), kept=(), bytes=3),
    Refused(code="gated", message="no", hint="set HF_TOKEN"),
]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_one_line(report: FetchReport) -> None:
    line = encode_fetch_report(report)
    assert line.count(b"\n") == 1
    assert decode_fetch_report(line) == report


def test_an_order_is_one_line() -> None:
    fetch = FetchOrder(source="hf://a/b:Q4_0", sha256="a" * 64, root=Path("/models"), limit=5)
    assert decode_fetch(encode_fetch(fetch)) == fetch


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ValidationError):
        decode_fetch_report(b'{"type": "refused", "code": "odd", "message": "m"}')
