"""Limits are checked as they are read; an agent's key binds it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.access.identity import NAMES, NO_LIMITS, CallerLimits, Identity, parse_limits

ADAPTER: TypeAdapter[CallerLimits] = TypeAdapter(CallerLimits)


def test_no_limit_is_the_default() -> None:
    assert ADAPTER.validate_json("{}") == CallerLimits()


@pytest.mark.parametrize("field", ["requests_per_minute", "tokens_per_minute", "max_concurrent"])
def test_a_limit_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        ADAPTER.validate_python({field: 0})


AGENT = Identity(
    name="rack", role="agent", limits=CallerLimits(models=("a", "b")), labels=(("gpu", "yes"),)
)


@pytest.mark.parametrize(
    ("labels", "models", "excess"),
    [
        ({}, [], None),
        ({"gpu": "yes"}, ["a", "b"], None),
        ({"gpu": "no"}, ["a"], "the key 'rack' does not allow the label 'gpu=no'"),
        ({"zone": "1"}, ["a"], "the key 'rack' does not allow the label 'zone=1'"),
        ({}, ["c"], "the key 'rack' does not allow the model 'c'"),
    ],
)
def test_an_agent_keeps_to_its_key(
    labels: dict[str, str], models: list[str], excess: str | None
) -> None:
    assert AGENT.excess(labels, models) == excess


def test_a_key_that_is_not_bound_allows_any_agent() -> None:
    assert Identity(name="any", role="agent").excess({"x": "y"}, ["m"]) is None


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
