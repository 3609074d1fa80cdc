from arriero.agent.chat.parsing.segments import CallBegan, CallEnded, TextSegment
from tests.agent.chat.telling import segments_of


def test_what_each_segment_stands_for() -> None:
    text = '<think>a</think> b <tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert segments_of("qwen", [text]) == [
        TextSegment("markup", "", "<think>", True),
        TextSegment("reasoning", "a", "a", True),
        TextSegment("markup", "", "</think>", True),
        TextSegment("markup", "", " "),
        TextSegment("content", "b", "b"),
        CallBegan("now", None, ' <tool_call>{"name": "now", "arguments": '),
        TextSegment("tool_call", "{}", "{}"),
        CallEnded("}"),
        TextSegment("markup", "", "</tool_call>"),
    ]
