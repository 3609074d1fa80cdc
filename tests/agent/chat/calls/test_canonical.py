"""Values as text that is equal where the values are."""

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.calls.canonical import TooDeepError, canonical


def text_of(value: object, most_depth: int = 10) -> str:
    return canonical(value, lambda _units: None, most_depth)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), ([1], [1.0]), ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}), (-0.0, 0), (1e300,) * 2],
)
def test_equal_values(one: Any, other: Any) -> None:
    assert text_of(one) == text_of(other)


def test_unequal_values() -> None:
    values = [0, 1, True, False, None, "1", "true", "", [], {}, [1], [[1]], [1, 1], {"a": 1}]
    values += [{"a": [1]}, ["a"], 0.5, "a,b", ["a", "b"], ["a,b"], {"a": {}}, 10**5000, "None"]
    for one, other in combinations(values, 2):
        assert text_of(one) != text_of(other)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES)
def test_what_json_keeps_is_the_same(value: Any) -> None:
    assert text_of(json.loads(json.dumps(value)), 20) == text_of(value, 20)


def test_it_goes_as_deep_as_it_may() -> None:
    assert text_of([[1]], 2)
    with pytest.raises(TooDeepError):
        text_of([[[1]]], 2)


@pytest.mark.parametrize(
    "value", [[0] * 100, {str(n): n for n in range(100)}, "x" * 6400, 2**6400, ["x" * 3200] * 2]
)
def test_all_work_is_told(value: Any) -> None:
    units = 0

    def spend(more: int) -> None:
        nonlocal units
        units += more

    canonical(value, spend, 10)
    assert units >= 100
