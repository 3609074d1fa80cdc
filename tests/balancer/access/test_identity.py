"""Limits are checked as they are read; an agent's key binds it."""

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.balancer.access.identity import CallerLimits, Identity

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
