"""What parsing a text would cost is known before it is parsed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.shared.errors import InvalidRequest
from arriero.shared.json_size import (
    MAX_CONTAINERS,
    MAX_STRINGS,
    MAX_VALUES,
    JsonCounter,
    check_size,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\,[]{}\n\u2028é'),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet='b"\\,{', max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def counted(value: Any) -> tuple[int, int, int]:
    """Values, strings and containers, by looking at what was parsed."""
    if isinstance(value, dict):
        # A member's name is no value of its own, and an empty container counts as if it had one.
        inner = [counted(each) for each in value.values()]
        names = len(value)
    elif isinstance(value, list):
        inner = [counted(each) for each in value]
        names = 0
    else:
        return 1, int(isinstance(value, str)), 0
    num_values, strings, containers = map(sum, zip(*inner, strict=True)) if inner else (1, 0, 0)
    return num_values + 1, strings + names, containers + 1


@given(values, st.booleans(), st.data())
def test_the_counts_are_those_of_the_parsed_text(value: Any, ascii: bool, data: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    counter = JsonCounter()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        counter.add(text[start:end])
    found = (counter.num_values, counter.num_strings, counter.num_containers)
    assert found == counted(value)


@given(st.binary())
def test_any_bytes_can_be_counted(text: bytes) -> None:
    check_size(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"[" + b"-1," * MAX_VALUES + b"1]", "values"),
        (b"[" + b"[]," * MAX_CONTAINERS + b"1]", "lists and objects"),
        (b"[" + b"{}," * MAX_CONTAINERS + b"1]", "lists and objects"),
        (b"[" + b'"",' * (MAX_STRINGS + 1) + b"1]", "strings"),
        (b"{" + b'"":1,' * (MAX_STRINGS + 1) + b"}", "strings"),
        (b'"' * 10_000_000, "strings"),
        (b"[" * 1_000_000, "lists"),
    ],
    ids=lambda each: each[:8] if isinstance(each, bytes) else each,
)
def test_too_much_is_refused(text: bytes, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"more than .* {name}"):
        check_size(text)


def test_text_may_be_long_whatever_it_consists_of() -> None:
    check_size(json.dumps({"prompt": '[{",\\' * 1_000_000}).encode())


def test_the_longest_prompt_of_token_ids_is_taken() -> None:
    check_size(b'{"prompt": [' + b"1," * (2**20 - 1) + b"1]}")
