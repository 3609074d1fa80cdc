"""Limits are checked as they are read."""

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.access.identity import CallerLimits

ADAPTER: TypeAdapter[CallerLimits] = TypeAdapter(CallerLimits)


def test_no_limit_is_the_default() -> None:
    assert ADAPTER.validate_json("{}") == CallerLimits()


@pytest.mark.parametrize("field", ["requests_per_minute", "tokens_per_minute", "max_concurrent"])
def test_a_limit_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        ADAPTER.validate_python({field: 0})
