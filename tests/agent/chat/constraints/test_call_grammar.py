"""What a model is held to write is read as calls that are as their tools want them."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from arriero.agent.chat.constraints.answer_grammar import AnswerFormat, answer_grammar
from arriero.agent.chat.families.call_syntax import Members
from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.parsing.tools import Tools
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, GenerateRequest, NamedTool
from tests.agent.chat.enforced import NOTATIONS
from tests.agent.chat.schemas import SCHEMAS
from tests.agent.chat.telling import pieces_of, segments_of
from tests.agent.chat.walking import walk
from tests.agent.saying import demo_grammars, demo_vocab

(CONTROL,) = demo_vocab().tokenize("<|im_start|>", add_special=False, parse_special=True)
MESSAGES = (ChatMessage(role="user", content="hi"),)

NAMES = st.sampled_from(["a", "b", "Name", "of-it", "é"])
PARAMETERS = st.dictionaries(NAMES, SCHEMAS, max_size=4).flatmap(
    lambda properties: st.builds(
        lambda required: {"type": "object", "properties": properties, "required": sorted(required)},
        st.sets(st.sampled_from(sorted(properties))) if properties else st.just(set[str]()),
    )
)
CHOICES = st.sampled_from(["required", "auto", NamedTool(name="get")])


def words_of(family: str, template: str) -> list[str]:
    """What is likely to come, and what is likely to be misread."""
    syntax = family_named(family).syntax(template)
    assert syntax is not None
    notation = [syntax.opening or "", syntax.end, syntax.after]
    if isinstance(members := syntax.arguments, Members):
        notation += [members.end, *members.barred, members.begin.replace("KEY", "a")]
    thoughts = family_named(family).reasoning
    notation += [thoughts.opening, thoughts.closing] if thoughts else []
    likely = [word.replace("↵", "\n") for word in notation if word]
    markers = list(family_named(family).markers(has_tools=True))
    values = ["null", "12", "True", '"', "}", "]", "x", "\n", "(1,", "[1]", '{"b": 1}', "<"]
    return likely * 3 + markers + values


@pytest.mark.parametrize(("family", "template"), NOTATIONS)
# A failing walk has no smaller one that says more, and looking for one takes minutes.
@settings(max_examples=3, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def test_what_is_written_is_read_as_calls_that_fit(
    family: str, template: str, data: st.DataObject
) -> None:
    draw = data.draw
    schemas = {name: draw(PARAMETERS) for name in ("get", "get_more")}
    tools = tuple({"name": name, "parameters": schemas[name]} for name in schemas)
    choice, is_one, is_thinking = draw(CHOICES), draw(st.booleans()), draw(st.booleans())
    assume(choice != "auto" or is_one)
    markers = family_named(family).markers(has_tools=True)
    marker = draw(st.none() | st.sampled_from(markers))
    # llguidance panics where only this one of a row of markers is a control token, as it never is.
    assume((family, marker) != ("gpt-oss", "<|start|>"))
    is_thinking = is_thinking and family_named(family).reasoning is not None
    grammar = answer_grammar(
        GenerateRequest(
            messages=MESSAGES, tools=tools, tool_choice=choice, parallel_tool_calls=not is_one
        ),
        AnswerFormat(
            family=family_named(family),
            template=template,
            is_thinking=is_thinking,
            may_think=draw(st.booleans()),
            control={marker: CONTROL} if marker else {},
        ),
    )
    assert grammar is not None
    text = walk(
        demo_grammars().compile(grammar.text),
        draw(st.integers(0, 2**31)),
        words=words_of(family, template),
        shown={CONTROL: marker.encode()} if marker else {},
    )
    assume(text is not None)
    check(family, text, schemas, is_thinking=is_thinking, is_forced=choice != "auto", is_one=is_one)


def check(
    family: str,
    text: str,
    schemas: dict[str, Any],
    *,
    is_thinking: bool,
    is_forced: bool,
    is_one: bool,
) -> None:
    tools = Tools([{"name": name, "parameters": schemas[name]} for name in schemas])
    pieces = pieces_of(segments_of(family, [text], is_thinking=is_thinking, tools=tools))
    calls: list[tuple[str, str]] = []
    for kind, said in pieces:
        if kind == "call":
            calls.append((said, ""))
        elif kind == "tool_call":
            calls[-1] = (calls[-1][0], calls[-1][1] + said)
    if is_forced:
        assert calls, text
        # What gpt-oss says before it calls, in the channel `commentary`, is content.
        assert family == "gpt-oss" or not [said for kind, said in pieces if kind == "content"]
    if is_one:
        assert len(calls) <= 1
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), schemas[name])
        assert tools.complaint(name, arguments) is None


def test_a_name_that_cannot_be_written_is_refused() -> None:
    tools = ({"type": "function", "function": {"name": "say it"}},)
    request = GenerateRequest(messages=MESSAGES, tools=tools, tool_choice="required")
    form = AnswerFormat(family=family_named("glm"), template="", is_thinking=False, may_think=False)
    with pytest.raises(InvalidRequest, match="'say it' cannot be written") as caught:
        answer_grammar(request, form)
    assert caught.value.field == "tools[0].function.name"
