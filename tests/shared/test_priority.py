from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference import (
    PRIORITY_CLASSES,
    PRIORITY_NUMBERS,
    Priority,
    ServiceTier,
    priority_class_of,
    priority_of_tier,
    tier_of,
)

PRIORITY: TypeAdapter[int] = TypeAdapter(Priority)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(100, "interactive"), (1, "interactive"), (0, "default"), (-1, "batch"), (-100, "batch")],
)
def test_the_sign_of_a_priority_says_its_class(number: int, kind: str) -> None:
    assert priority_class_of(number) == kind


def test_every_class_has_a_word_that_means_it() -> None:
    assert tuple(PRIORITY_NUMBERS) == PRIORITY_CLASSES
    assert [priority_class_of(PRIORITY_NUMBERS[each]) for each in PRIORITY_CLASSES] == list(
        PRIORITY_CLASSES
    )


def test_words_and_numbers_are_taken() -> None:
    assert [PRIORITY.validate_python(word) for word in PRIORITY_CLASSES] == [-1, 0, 1]
    assert PRIORITY.validate_python(-100) == -100
    for wrong in ("urgent", "1", 101, None):
        with pytest.raises(ValidationError):
            PRIORITY.validate_python(wrong)
    with pytest.raises(ValidationError, match="`interactive`, `default`, `batch`"):
        PRIORITY.validate_python("urgent")


def test_the_schema_tells_both() -> None:
    assert "interactive" in str(PRIORITY.json_schema(mode="validation"))


def test_tiers_are_classes() -> None:
    kinds = {tier: priority_class_of(priority_of_tier(tier)) for tier in get_args(ServiceTier)}
    assert {tier for tier, kind in kinds.items() if kind == "default"} == {
        "auto",
        "default",
        "scale",
    }
    assert (kinds["priority"], kinds["flex"]) == ("interactive", "batch")
    assert priority_of_tier("default") == 0
    assert priority_of_tier("auto") is priority_of_tier(None) is None, "the caller's own counts"


def test_the_tier_that_was_used_is_told_in_three_words() -> None:
    told = {tier: tier_of(priority_of_tier(tier)) for tier in get_args(ServiceTier)}
    assert {tier: each for tier, each in told.items() if tier != each} == {
        "auto": "default",
        "scale": "default",
        "fast": "priority",
        "ultrafast": "priority",
    }
