"""Statistics are what can be measured, or refused."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from arriero.shared.messages import decode_from_agent, encode_from_agent
from arriero.shared.reports.statistics import Cells, Histogram, Statistics

STATISTICS = Statistics(
    num_running=2,
    cells=Cells(total=64, used=20, kept=10),
    stalls=Histogram(bounds=(0.1, 1.0), counts=(3, 2, 1), seconds=4.5),
)


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(encode_from_agent(STATISTICS)) | fields)


def test_statistics_survive_their_way() -> None:
    assert decode_from_agent(changed()) == STATISTICS


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"num_running": -1}, "num_running"),
        ({"decode_tokens": 10**400}, "decode_tokens"),
        ({"tokens_per_second": -0.5}, "tokens_per_second"),
        ({"tokens_per_second": "fast"}, "tokens_per_second"),
        ({"cells": {"total": 1, "spare": 1}}, "cells"),
        ({"stalls": {"bounds": [0.1, 1.0], "counts": [1, 2]}}, "stalls"),
        ({"stalls": {"bounds": [1.0, 1.0], "counts": [1, 2, 3]}}, "stalls"),
        ({"stalls": {"bounds": list(range(33)), "counts": [0] * 34}}, "stalls"),
        ({"stall_seconds": 1.0}, "stall_seconds"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        decode_from_agent(changed(**fields))
