"""The fields of an upload."""

import pytest

from arriero.balancer.api.openai.batches.upload_form import parse_form
from arriero.shared.errors import InvalidRequest


def test_fields() -> None:
    form = parse_form({"purpose": "batch", "expires_after[seconds]": "3600"})
    assert form.expires_after == 3600
    assert parse_form({"purpose": "batch"}).expires_after is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"purpose": "x"},
        {"purpose": "batch", "expires_after[seconds]": "1"},
        {"purpose": "batch", "expires_after[anchor]": "x"},
        {"purpose": "batch", "more": "x"},
    ],
)
def test_what_is_wrong(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_form(given)
    assert error.value.field
