"""What one request of a caller may ask for."""

from dataclasses import replace

import pytest

from arriero.balancer.access.identity import NO_LIMITS, CallerLimits, PriorityClass
from arriero.balancer.access.limits.rules import (
    bounded,
    joined,
    model_for,
    priority_within,
    share_of,
)
from arriero.shared.errors import InvalidRequest, ModelNotFound
from arriero.shared.inference import GenerateRequest

REQUEST = GenerateRequest(prompt="Once")
ALIASES: dict[str | None, str] = {"gpt-4o-mini": "llama"}


def resolve(name: str | None) -> str | None:
    return ALIASES.get(name, name)


def test_defaults_fill_what_is_left_open() -> None:
    own = CallerLimits(requests_per_minute=5, max_tokens=10)
    defaults = CallerLimits(requests_per_minute=1, tokens_per_minute=100, priority="batch")
    assert joined(own, defaults) == CallerLimits(
        requests_per_minute=5, max_tokens=10, tokens_per_minute=100, priority="batch"
    )
    assert joined(NO_LIMITS, defaults) is defaults
    assert joined(own, NO_LIMITS) is own


def test_any_model_without_limits() -> None:
    assert model_for("gpt-4o-mini", NO_LIMITS, resolve) == "llama"
    assert model_for(None, NO_LIMITS, resolve) is None


@pytest.mark.parametrize("models", [("llama",), ("gpt-4o-mini",), ("qwen", "llama")])
def test_a_model_by_its_name_or_an_alias(models: tuple[str, ...]) -> None:
    limits = CallerLimits(models=models)
    assert model_for("llama", limits, resolve) == "llama"
    assert model_for("gpt-4o-mini", limits, resolve) == "llama"
    assert isinstance(model_for("other", limits, resolve), ModelNotFound)


def test_a_model_need_not_be_named_where_there_is_one() -> None:
    assert model_for(None, CallerLimits(models=("gpt-4o-mini",)), resolve) == "llama"
    error = model_for(None, CallerLimits(models=("qwen", "llama")), resolve)
    assert isinstance(error, InvalidRequest)
    assert error.field == "model"
    assert "`qwen`, `llama`" in error.message


def test_the_longest_answer() -> None:
    limits = CallerLimits(max_tokens=10)
    assert bounded(REQUEST, limits) == replace(REQUEST, max_tokens=10)
    short = replace(REQUEST, max_tokens=10)
    assert bounded(short, limits) is short
    error = bounded(replace(REQUEST, max_tokens=11), limits)
    assert isinstance(error, InvalidRequest)
    assert error.field == "max_tokens"
    assert "at most 10" in error.message


@pytest.mark.parametrize(
    ("highest", "asked", "given"),
    [("interactive", 100, 100), ("default", 5, 0), ("default", -5, -5), ("batch", 0, -1)],
)
def test_a_higher_priority_is_lowered(highest: PriorityClass, asked: int, given: int) -> None:
    within = bounded(replace(REQUEST, priority=asked), CallerLimits(priority=highest))
    assert within == replace(REQUEST, priority=given)


@pytest.mark.parametrize("num", range(1, 8))
@pytest.mark.parametrize("limit", [1, 5, 60, 100_000])
def test_shares_add_up_to_the_limit_and_less_than_one_more_each(num: int, limit: int) -> None:
    whole = CallerLimits(requests_per_minute=limit, max_concurrent=limit, max_tokens=limit)
    share = share_of(whole, num)
    assert share.requests_per_minute is not None and share.max_concurrent is not None
    assert limit <= num * share.requests_per_minute < limit + num
    assert limit <= num * share.max_concurrent < limit + num
    assert (share.tokens_per_minute, share.max_queued) == (None, None)
    assert share.max_tokens == limit, "of one request, wherever it goes"


@pytest.mark.parametrize(
    ("asked", "default", "highest", "given"),
    [
        (None, None, "interactive", None),
        (None, None, "default", None),
        (None, None, "batch", -1),
        (None, "batch", "interactive", -1),
        (None, "interactive", "interactive", 1),
        (None, "interactive", "default", 0),
        (0, "batch", "interactive", 0),
        (5, "batch", "interactive", 5),
        (-5, "interactive", "interactive", -5),
    ],
)
def test_who_says_no_priority_has_the_callers_default(
    asked: int | None, default: PriorityClass | None, highest: PriorityClass, given: int | None
) -> None:
    limits = CallerLimits(priority=highest, default_priority=default)
    assert priority_within(asked, limits) == given
    assert bounded(replace(REQUEST, priority=asked), limits) == replace(REQUEST, priority=given)


def test_a_default_of_all_keys_is_for_those_without_their_own() -> None:
    defaults = CallerLimits(default_priority="batch")
    assert joined(CallerLimits(max_queued=1), defaults).default_priority == "batch"
    own = CallerLimits(default_priority="interactive")
    assert joined(own, defaults).default_priority == "interactive"
