"""Errors by the names that a client's body has for fields."""

import pytest

from arriero.balancer.api.common.field_names import FieldNames
from arriero.shared.errors import AgentLost, NotSupported, PromptTooLong, QueueFull

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
