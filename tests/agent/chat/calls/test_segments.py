from arriero.agent.chat.calls.segments import CallBegan, CallEnded, Said
from tests.agent.chat.telling import segments_of


def test_what_each_segment_stands_for() -> None:
    text = '<think>a</think> b <tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert segments_of("qwen", [text]) == [
        Said("markup", "", "<think>", True),
        Said("reasoning", "a", "a", True),
        Said("markup", "", "</think>", True),
        Said("markup", "", " "),
        Said("content", "b", "b"),
        CallBegan("now", None, ' <tool_call>{"name": "now", "arguments": '),
        Said("tool_call", "{}", "{}"),
        CallEnded("}"),
        Said("markup", "", "</tool_call>"),
    ]
