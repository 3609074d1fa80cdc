"""What a body asks for, and what is refused by name."""

import pytest
from pydantic_core import to_json

from arriero.balancer.api.common.body_fields import body_fields, listed
from arriero.shared.errors import InvalidRequest

REFUSED = {"audio": frozenset[bytes](), "choice": frozenset({b'"auto"', b'"none"'})}


def given(body: object) -> dict[str, object]:
    return body_fields(
        to_json(body),
        refused=REFUSED,
        ignored=frozenset({"user"}),
        served=frozenset({"choice"}),
    )


def test_what_asks_for_nothing_is_left_out() -> None:
    body = {"model": "m", "audio": None, "user": "me", "choice": "none", "n": 0}
    assert given(body) == {"model": "m", "choice": "none", "n": 0}


def test_values_that_ask_for_nothing() -> None:
    refused = {"logprobs": frozenset({b"false"})}
    assert body_fields(b'{"logprobs": false}', refused=refused) == {}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("audio", {}, "`audio` is not supported; leave it out"),
        ("choice", "required", '`choice` is not supported but for "auto", "none"'),
    ],
)
def test_what_cannot_be_had_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        given({name: value})
    assert caught.value.message == message
    assert caught.value.field == name


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'{"a": NaN}', b"\xff"])
def test_bodies_that_are_no_objects(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        body_fields(body, refused={})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", ["a"]),
        ([1, 2], [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2]], [[1], [2]]),
        ([], []),
        ([1, "a"], [1, "a"]),
        ([True], [True]),
        (7, 7),
    ],
)
def test_one_input_is_a_list_of_one(value: object, expected: object) -> None:
    assert listed(value) == expected
