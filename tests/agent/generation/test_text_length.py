from typing import Any

import pytest

from arriero.agent.generation.text_length import (
    LONG_TEXT,
    VERY_LONG_TEXT,
    is_long,
    text_length,
)
from arriero.shared.inference import ChatMessage, GenerateRequest, TextPart

LONG = "x" * (LONG_TEXT + 1)
HALF = LONG[: LONG_TEXT // 2]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"text": LONG}
    for _ in range(depth):
        value = {"in": [value]}
    return value


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "hi"},
        {"prompt": HALF, "suffix": "x"},
        {"prompt": tuple(range(100))},
        {"messages": (ChatMessage(role="user", content=HALF),)},
        {"messages": (ChatMessage(role="user", content="hi"),), "tools": ({"name": "now"},)},
    ],
)
def test_short(fields: dict[str, Any]) -> None:
    assert not is_long(GenerateRequest(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": LONG},
        {"prompt": HALF, "suffix": HALF},
        {"prompt": (1,) * (LONG_TEXT + 1)},
        {"messages": (ChatMessage(role="user", content=LONG),)},
        {"messages": (ChatMessage(role="user", content=HALF),) * 3},
        {"messages": (ChatMessage(role="user", content=(TextPart(type="text", text=HALF),) * 3),)},
        {"messages": (ChatMessage(role="user", content="x"),), "tools": (nested(500),)},
        {"messages": (ChatMessage(role="user", content="x"),), "tools": ({LONG: 1},)},
        {"messages": (ChatMessage(role="user", content="x"),), "tools": ({"a": [1] * LONG_TEXT},)},
        {"messages": (ChatMessage(role="assistant", content="", reasoning_content=LONG),)},
        {"messages": (ChatMessage(role="user", content="x"),), "chat_template_kwargs": {"a": LONG}},
    ],
)
def test_long_wherever_the_text_is(fields: dict[str, Any]) -> None:
    assert is_long(GenerateRequest(**fields))


def test_strings_are_counted_on_where_values_are_no_longer_looked_at() -> None:
    assert text_length(GenerateRequest(prompt="x" * 500_000)) == pytest.approx(500_000, rel=0.01)
    messages = (ChatMessage(role="user", content=HALF),) * 10
    assert text_length(GenerateRequest(messages=messages)) == pytest.approx(5 * LONG_TEXT, rel=0.01)
    endless = GenerateRequest(prompt="x" * (5 * VERY_LONG_TEXT))
    assert text_length(endless) > VERY_LONG_TEXT
