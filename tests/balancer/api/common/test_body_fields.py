"""The fields of bodies that are set, and their names in errors."""

import pytest

from arriero.balancer.api.common.body_fields import FieldNames, body_fields, in_list
from arriero.shared.errors import AgentLost, InvalidRequest, NotSupported, PromptTooLong, QueueFull


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


NAMES = FieldNames({"messages": "input", "tools[].function.parameters": "tools[].input_schema"})


@pytest.mark.parametrize(
    ("neutral", "own"),
    [
        ("messages", "input"),
        ("messages[3].content", "input[3].content"),
        ("messages_too", "messages_too"),
        ("tools[12].function.parameters.properties.a", "tools[12].input_schema.properties.a"),
        ("tools[1].function.name", "tools[1].function.name"),
        ("seed", "seed"),
    ],
)
def test_names(neutral: str, own: str) -> None:
    told = NAMES.renamed(PromptTooLong(f"`{neutral}`: it is `messages`", field=neutral))
    assert told == PromptTooLong(
        f"`{own}`: it is `messages`" if neutral != "messages" else "`input`: it is `input`",
        field=own,
    )


def test_the_error_is_the_same_one() -> None:
    told = NAMES.renamed(NotSupported("`messages`", field="messages", retry_after=2.0))
    assert isinstance(told, NotSupported)
    assert told.retry_after == 2.0
    for error in (AgentLost("gone"), QueueFull("full", retry_after=1.0)):
        assert NAMES.renamed(error) is error


def test_several_indices_keep_their_order() -> None:
    names = FieldNames({"a[].b[].c": "x[].y[]", "d[0].e[]": "e[]"})
    for neutral, own in (("a[3].b[5].c", "x[3].y[5]"), ("d[0].e[4]", "e[4]"), ("d[1].e[4]", None)):
        error = names.renamed(PromptTooLong("odd", field=neutral))
        assert error.field == (own or neutral)
