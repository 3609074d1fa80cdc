import pytest

from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, told

NOW = call("now", "{}")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain text", [("content", "plain text")]),
        ("<|channel|>final<|message|>hi", [("content", "hi")]),
        ("<|message|>hi<|return|>", [("content", "hi")]),
        ("<|channel|>analysis<|message|>a", [("reasoning", "a")]),
        (
            "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant"
            "<|channel|>analysis<|message|>b<|end|>",
            [("reasoning", "ab")],
        ),
        (" to=functions.now<|channel|>commentary json<|message|>{}<|call|>", NOW),
        ("<|start|>assistant<|channel|>commentary to=functions.now<|message|>{}", NOW),
        (
            "<|channel|>analysis<|message|>a<|channel|>commentary to=functions.now<|message|>{}",
            [("reasoning", "a"), *NOW],
        ),
        (
            '<|channel|>commentary to=functions.now<|message|>{"a": "<|end|>"} <|call|>',
            call("now", '{"a": "<|end|>"} '),
        ),
        ("<|channel|>analysis to=python<|message|>{}<|call|>", call("python", "{}")),
        ("<|channel|>final", [("content", "<|channel|>final")]),
        ("<|channel|>final<|end|>hi", [("content", "<|channel|>final<|end|>hi")]),
    ],
)
def test_messages(text: str, pieces: list[Piece]) -> None:
    assert told("gpt-oss", text) == pieces


def test_without_tools_a_message_to_a_function_is_content() -> None:
    text = "<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    assert told("gpt-oss", text, tools=None) == [("content", "{}")]
