"""What a body asks for."""

import pytest

from arriero.balancer.api.common.body_fields import body_fields, listed
from arriero.shared.errors import InvalidRequest


def test_null_is_left_out() -> None:
    assert body_fields(b'{"model": "m", "audio": null, "n": 0}') == {"model": "m", "n": 0}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'{"a": NaN}', b"\xff"])
def test_bodies_that_are_no_objects(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        body_fields(body)


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
