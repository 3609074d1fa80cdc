"""What a body asks for."""

import pytest

from arriero.balancer.api.common.body_fields import body_fields, in_list
from arriero.shared.errors import InvalidRequest


def test_null_is_left_out() -> None:
    assert body_fields(b'{"model": "m", "audio": null, "n": 0}') == {"model": "m", "n": 0}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'{"a": NaN}', b"\xff"])
def test_bodies_that_are_no_objects(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        body_fields(body)


@pytest.mark.parametrize(
    ("value", "expected", "named"),
    [
        ("a", ["a"], "input"),
        ([1, 2], [[1, 2]], "input"),
        (["a", "b"], ["a", "b"], "input[0]"),
        ([[1], [2]], [[1], [2]], "input[0]"),
        ([], [], "input[0]"),
        ([1, "a"], [1, "a"], "input[0]"),
        ([True], [True], "input[0]"),
    ],
)
def test_one_input_is_a_list_of_one(value: object, expected: object, named: str) -> None:
    given = {"input": value}
    names = in_list(given, "input")
    assert given == {"input": expected}
    error = names.renamed(InvalidRequest("`input[0]` is wrong", field="input[0]"))
    assert (error.message, error.field) == (f"`{named}` is wrong", named)


def test_what_is_neither_a_text_nor_a_list() -> None:
    with pytest.raises(InvalidRequest, match="`input` must be a string or a list, not 7"):
        in_list({"input": 7}, "input")
    in_list({}, "input")  # the types say that it is missing
