"""The body that makes a batch."""

import json

import pytest

from arriero.balancer.api.openai.batches.requests import parse_batch
from arriero.shared.errors import InvalidRequest

GOOD = {"input_file_id": "f", "endpoint": "/v1/responses", "completion_window": "24h"}


def test_openais_own() -> None:
    expires = {"anchor": "created_at", "seconds": 3600}
    wanted = parse_batch(json.dumps(GOOD | {"output_expires_after": expires}).encode())
    assert (wanted.window, wanted.completion_window) == (86_400.0, "24h")
    assert wanted.output_expires_after == 3600


@pytest.mark.parametrize("window", ["30m", "1.5h", "30d"])
def test_other_windows(window: str) -> None:
    assert parse_batch(json.dumps(GOOD | {"completion_window": window}).encode()).window > 0


@pytest.mark.parametrize("window", ["0s", "31d", "400d", "", "x", "-1h"])
def test_windows_that_are_none(window: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_batch(json.dumps(GOOD | {"completion_window": window}).encode())
    assert error.value.field == "completion_window"
