"""Ranges of what agents report, and how an honest agent keeps within them."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference.values import MOST_RATE, NumTokens, Rate, Seconds, rate_of, within

RATE: TypeAdapter[float] = TypeAdapter(Rate)


@pytest.mark.parametrize("text", ["5e-324", "1e308", "-1", "0", "NaN", "1e400"])
def test_a_rate_that_no_engine_has_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        RATE.validate_json(text)


@pytest.mark.parametrize("number", [2**31, 2**63, 10**308, 10**400, -1])
def test_a_count_that_no_request_has_is_refused(number: int) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(NumTokens).validate_json(str(number))


def test_a_duration_is_finite() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Seconds).validate_json("1e308")


@given(st.integers(0, 2**53), st.none() | st.floats(0, 1e9))
@example(1, 5e-324)
@example(2**53, 1e9)
def test_a_rate_that_is_measured_can_be_sent(amount: int, seconds: float | None) -> None:
    rate = rate_of(amount, seconds)
    if amount and seconds:
        assert rate is not None and RATE.validate_python(rate) == rate
        assert math.isclose(rate, within(amount / max(seconds, 1e-290), 1e-3, MOST_RATE))
    else:
        assert rate is None


@given(st.floats())
def test_within_is_always_within(value: float) -> None:
    assert 1.0 <= within(value, 1.0, 2.0) <= 2.0
