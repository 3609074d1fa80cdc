"""How calls are written has to be what the segmenter reads as calls."""

import json
import re

import pytest

from arriero.agent.chat.families.call_syntax import CallSyntax, Members
from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.parsing.segmenter import Segmenter
from arriero.agent.chat.parsing.segments import CallBegan, TextSegment
from arriero.agent.chat.parsing.tools import Tools
from tests.agent.chat.enforced import NOTATIONS

TOOLS = Tools([{"function": {"name": name}} for name in ("now", "list_agents")])
FIRST, SECOND = '{"a": "}<>"}', '{"b": [1, {}]}'

CASES = [
    (family, template)
    for family, template in NOTATIONS
    if (syntax := family_named(family).syntax(template)) and syntax.arguments == "json"
]


def written(syntax: CallSyntax, calls: list[tuple[str, str]]) -> str:
    parts = [
        syntax.begin.replace("NUMBER", str(number)).replace("NAME", name) + arguments + syntax.end
        for number, (name, arguments) in enumerate(calls)
    ]
    return syntax.before + (syntax.between or "").join(parts) + syntax.after


def read(family: str, text: str) -> tuple[list[tuple[str, str]], str]:
    segmenter = Segmenter(family_named(family), is_thinking=False, tools=TOOLS)
    calls: list[tuple[str, str]] = []
    content = ""
    for segment in [*segmenter.push(text), *segmenter.flush()]:
        if isinstance(segment, CallBegan):
            calls.append((segment.name, ""))
        elif isinstance(segment, TextSegment) and segment.kind == "tool_call":
            calls[-1] = (calls[-1][0], calls[-1][1] + segment.text)
        elif isinstance(segment, TextSegment) and segment.kind == "content":
            content += segment.text
    return calls, content


@pytest.mark.parametrize(("family", "template"), CASES)
def test_what_is_written_is_read_as_calls(family: str, template: str) -> None:
    syntax = family_named(family).syntax(template)
    assert syntax is not None
    calls = [("list_agents", FIRST), ("now", SECOND)]
    if syntax.between is None:
        calls = calls[:1]
    assert read(family, written(syntax, calls)) == (calls, "")


@pytest.mark.parametrize(("family", "template"), CASES)
def test_the_opening_is_what_it_begins_with(family: str, template: str) -> None:
    syntax = family_named(family).syntax(template)
    assert syntax is not None
    if syntax.opening is not None:
        assert (syntax.before + syntax.begin).startswith(syntax.opening)
        markers = family_named(family).markers(has_tools=True)
        assert any(syntax.opening.startswith(marker) for marker in markers)


@pytest.mark.parametrize(("family", "template"), CASES)
def test_names_are_quoted_where_json_is_around_them(family: str, template: str) -> None:
    syntax = family_named(family).syntax(template)
    assert syntax is not None
    assert syntax.is_quoted == bool(re.search(r'"NAME"', syntax.begin))
    if syntax.is_quoted:
        body = written(syntax, [("now", "{}")])
        assert json.loads(body[body.index("{") : body.rindex("}") + 1])


@pytest.mark.parametrize("family", ["minimax-m3", "exaone", "plain"])
def test_what_nobody_can_say(family: str) -> None:
    assert family_named(family).syntax("") is None


@pytest.mark.parametrize(
    ("family", "template", "opening"),
    [
        ("qwen", "<function=", "<tool_call>"),
        ("glm", "", "<tool_call>"),
        ("gemma", "", "<|tool_call>"),
        ("dsml", "'tool_calls>'", "<｜DSML｜tool_calls>"),
        ("dsml", "'function_calls>'", "<｜DSML｜function_calls>"),
    ],
)
def test_notations_of_their_own(family: str, template: str, opening: str) -> None:
    syntax = family_named(family).syntax(template)
    assert syntax is not None
    assert syntax.opening == opening
    assert syntax.arguments != "json"


def test_text_may_hold_nothing_that_the_reader_takes_for_its_end() -> None:
    syntax = family_named("qwen").syntax("<function=")
    assert syntax is not None
    assert isinstance(syntax.arguments, Members)
    assert syntax.arguments == Members(
        begin="<parameter=KEY>\n",
        end="\n</parameter>",
        after="\n",
        barred=("</parameter>", "</function>", "<parameter="),
    )


@pytest.mark.parametrize("family", ["plain", "exaone", "minimax-m3"])
def test_forced_calls_that_are_json_are_read(family: str) -> None:
    read_as = family_named(family).forced("")
    tools = Tools([{"function": {"name": "f"}}, {"function": {"name": "g"}}])
    segmenter = Segmenter(read_as, is_thinking=False, tools=tools)
    text = '[{"name": "f", "arguments": {"x": [1]}}, {"name": "g", "arguments": {}}]'
    segments = [*segmenter.push(text), *segmenter.flush()]
    assert [each.name for each in segments if isinstance(each, CallBegan)] == ["f", "g"]
    assert not [
        each for each in segments if isinstance(each, TextSegment) and each.kind == "content"
    ]


def test_forced_calls_of_others_are_read_as_they_write_them() -> None:
    assert family_named("qwen").forced("") is family_named("qwen")
