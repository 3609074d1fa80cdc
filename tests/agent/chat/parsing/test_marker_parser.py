import pytest

from tests.agent.chat.recorded import call
from tests.agent.chat.telling import Piece, told

CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
NOW = call("now", "{}")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("  hi \n", [("content", "  hi \n")]),
        ("use <think> tags</think>", [("content", "use <think> tags</think>")]),
        ("\n<think>a</think>b", [("reasoning", "a"), ("content", "b")]),
        ("<think>\n\n</think>\n\nb", [("content", "b")]),
        ("<think>a", [("reasoning", "a")]),
        ("<think>a <tool_call> b</think>", [("reasoning", "a <tool_call> b")]),
        (f"{CALL}<think>a</think>b", [*NOW, ("reasoning", "a"), ("content", "b")]),
        (f"{CALL}\n\nb\n", [*NOW, ("content", "b\n")]),
        (f"a <tool_call> b\n{CALL}", [("content", "a <tool_call> b"), *NOW]),
        (f"<tool_call>{CALL}", [("content", "<tool_call>"), *NOW]),
        ("<tool_call> <think>a</think>", [("content", "<tool_call> <think>a</think>")]),
        ("<tool_call>", [("content", "<tool_call>")]),
        ('<tool_call>{"name": "now"', [("content", '<tool_call>{"name": "now"')]),
    ],
)
def test_where_markers_count(text: str, pieces: list[Piece]) -> None:
    assert told("qwen", text) == pieces


def test_reasoning_that_the_prompt_opened() -> None:
    assert told("qwen", "\na\n</think>\n\nb", is_thinking=True) == [
        ("reasoning", "a"),
        ("content", "b"),
    ]


@pytest.mark.parametrize(
    "text",
    ['{"name": "Bob", "age": 3}', '{"a": 1}', "[1] is a source", '{"name": "unknown", "args": {}}'],
)
def test_json_alone_is_a_call_only_of_a_known_tool(text: str) -> None:
    assert told("llama", text) == [("content", text)]


def test_json_within_content_is_content() -> None:
    text = 'It is {"name": "now", "parameters": {}}'
    assert told("llama", text) == [("content", text)]
