"""Limits as operators write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.identity import NO_LIMITS, CallerLimits
from arriero.balancer.access.limits_text import NAMES, parse_limits

COUNTS = st.none() | st.integers(1, 2**31 - 1)
LIMITS = st.builds(
    CallerLimits,
    models=st.none() | st.lists(st.sampled_from(["llama", "org/m:q4"]), min_size=1).map(tuple),
    requests_per_minute=COUNTS,
    tokens_per_minute=COUNTS,
    max_concurrent=COUNTS,
    max_queued=COUNTS,
    max_tokens=COUNTS,
    priority=st.sampled_from(["batch", "default", "interactive"]),
    default_priority=st.none() | st.sampled_from(["batch", "default", "interactive"]),
)


def test_as_people_write_them() -> None:
    limits = parse_limits(" requests-per-minute=60, max_tokens = 500,models=a+b,priority=batch,")
    assert limits == CallerLimits(
        requests_per_minute=60, max_tokens=500, models=("a", "b"), priority="batch"
    )
    assert parse_limits(limits) is limits
    assert parse_limits("") is NO_LIMITS


def format_limits(limits: CallerLimits) -> str:
    """The text that gives them; empty where there are none."""
    parts = []
    for name in NAMES:
        value = getattr(limits, name.replace("-", "_"))
        if value != getattr(NO_LIMITS, name.replace("-", "_")):
            parts.append(f"{name}={'+'.join(value) if isinstance(value, tuple) else value}")
    return ",".join(parts)


@given(LIMITS)
def test_what_is_written_is_read(limits: CallerLimits) -> None:
    assert parse_limits(format_limits(limits)) == limits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("60", "NAME=VALUE"),
        ("requests=60", "requests-per-minute"),
        ("max-tokens=5,max_tokens=6", "max-tokens once"),
        ("max-tokens=many", "whole number for max-tokens"),
        ("max-tokens=0", "max-tokens must be"),
        ("max-tokens=99999999999", "whole number for max-tokens"),
        ("priority=high", "priority must be"),
        ("default-priority=1", "default-priority must be"),
        ("max-tokens", "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_limits(text)
