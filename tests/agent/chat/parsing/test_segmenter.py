import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.families.families import FAMILIES, FAMILY_NAMES, family_named
from arriero.agent.chat.parsing.segmenter import Segmenter
from arriero.agent.chat.parsing.segments import TextSegment
from tests.agent.chat.recorded import RECORDED, call
from tests.agent.chat.telling import TOOLS, Piece, cut, pieces_of, segments_of, told

QWEN = family_named("qwen")

SCRAPS = sorted(
    {marker for family in FAMILIES for marker in family.markers(has_tools=True)}
    | set(' \n{}[]",:;a<>|\\é☃')
    | {'"name"', '"arguments": {', '{"name": "now", ', "get_weather", "to=functions.now", "call:"}
    | {"<function=now>", "<parameter=a>", "</parameter>", "</function>", "<arg_key>", "</arg_key>"}
    | {
        "now(a='b', c=3)",
        "all\n",
        '{"now": {',
        "</param>",
        "</｜DSML｜invoke>",
        '" index="1"<|sep|>',
    }
    | {'<param name="a">', '<｜DSML｜parameter name="a" string="false">', "</｜DSML｜parameter>"}
    | {'<|open|>argument key="a" type="string"<|sep|>', "<|close|>argument<|sep|>", 'now">'}
    | {"<arg_value>", "</arg_value>", "analysis", "final", "functions.now:0", "function", "```json"}
)
TEXTS = st.lists(st.sampled_from(SCRAPS), max_size=30).map("".join) | st.sampled_from(
    [text for _, text, _, _ in RECORDED.values()]
)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_answers(name: str) -> None:
    family, text, is_thinking, says = RECORDED[name]
    assert told(family, text, is_thinking=is_thinking) == says


@given(
    st.sampled_from(FAMILY_NAMES),
    TEXTS,
    st.lists(st.integers(0, 10_000), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_any_text_cut_anywhere_says_the_same_and_loses_nothing(
    family: str, text: str, places: list[int], is_thinking: bool, has_tools: bool
) -> None:
    options = {"is_thinking": is_thinking, "tools": TOOLS if has_tools else None}
    whole = segments_of(family, [text], **options)
    for parts in (cut(text, places), list(text)):
        segments = segments_of(family, parts, **options)
        assert "".join(segment.raw for segment in segments) == text
        assert pieces_of(segments) == pieces_of(whole)
    for segment in whole:
        if isinstance(segment, TextSegment) and segment.kind in ("content", "reasoning"):
            assert segment.text == segment.raw


@given(st.sampled_from(FAMILY_NAMES), st.text(), st.booleans())
def test_text_without_markers_is_content(family: str, text: str, has_tools: bool) -> None:
    pieces = told(family, text, tools=TOOLS if has_tools else None)
    assert "".join(said for kind, said in pieces if kind == "content") == text


@pytest.mark.parametrize("name", [name for name in RECORDED if RECORDED[name][0] != "gpt-oss"])
def test_without_tools_there_are_no_calls(name: str) -> None:
    family, text, is_thinking, _ = RECORDED[name]
    kinds = {kind for kind, _ in told(family, text, is_thinking=is_thinking, tools=None)}
    assert kinds <= {"content", "reasoning"}


def test_arguments_leave_as_they_come() -> None:
    segmenter = Segmenter(QWEN, is_thinking=False, tools=TOOLS)
    segmenter.push('<tool_call>{"name": "now", "arguments": ')
    assert segmenter.kind == "content"
    assert pieces_of(segmenter.push('{"a"')) == [("call", "now"), ("tool_call", '{"a"')]
    assert segmenter.kind == "tool_call"
    assert pieces_of(segmenter.push(': "x')) == [("tool_call", ': "x')]
    assert pieces_of(segmenter.push('"}}')) == [("tool_call", '"}'), ("end", "")]
    assert segmenter.kind == "content"


def test_the_kind_is_known_before_anything_is_said() -> None:
    segmenter = Segmenter(QWEN, is_thinking=True, tools=None)
    assert segmenter.kind == "reasoning"
    segmenter.push("\n")
    assert segmenter.kind == "reasoning"
    segmenter.push("Hm.</think>")
    assert segmenter.kind == "content"


@pytest.mark.parametrize(
    "unit",
    ["word ", "\n", "<", "<tool_call>", '<tool_call>{"a": ', "<think>", '{"name": "now", ', "["],
)
def test_the_cost_of_a_token_does_not_grow_with_the_answer(unit: str) -> None:
    """Counted in calls of Python functions, since time is not to be relied on."""

    def num_calls(num_units: int) -> int:
        segmenter = Segmenter(QWEN, is_thinking=False, tools=TOOLS)
        count = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            for _ in range(num_units):
                segmenter.push(unit)
            segmenter.flush()
        finally:
            sys.setprofile(None)
        return count

    assert num_calls(2000) < 2.5 * num_calls(1000)


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
