"""What an answer may be, told by what fits its grammar."""

import json
from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.chat.constraints.answer_grammar import (
    MOST_TOLD,
    AnswerFormat,
    AnswerGrammar,
    answer_grammar,
)
from arriero.agent.chat.families.families import family_named
from arriero.agent.engine.grammar.constraint import Constraint
from arriero.shared.errors import InvalidRequest, NotSupported
from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    JsonSchemaGrammar,
    LarkGrammar,
    NamedTool,
    RegexGrammar,
)
from tests.agent.saying import demo_grammars, fits

NUMBER = RegexGrammar(type="regex", pattern="[0-9]+")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
OPEN = {name: value for name, value in PERSON.items() if name != "additionalProperties"}
"""Says nothing of other members, so there are none."""
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "greet", "parameters": PERSON}},
    {"type": "function", "function": {"name": "now"}},
)
STRICT = (
    {"type": "function", "function": {"name": "greet", "parameters": PERSON, "strict": True}},
)
ANN = '{"name": "Ann", "age": 7}'
MORE = '{"name": "Ann", "age": 7, "city": "Lima"}'
GREET = f'<tool_call>\n{{"name": "greet", "arguments": {ANN}}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
MESSAGES = (ChatMessage(role="user", content="hi"),)


def answer_format(
    family: str = "qwen",
    template: str = "",
    *,
    is_thinking: bool = False,
    may_think: bool = False,
) -> AnswerFormat:
    return AnswerFormat(
        family=family_named(family),
        template=template,
        is_thinking=is_thinking,
        may_think=may_think,
    )


def grammar(spoken: AnswerFormat | None, **fields: Any) -> AnswerGrammar | None:
    return answer_grammar(GenerateRequest(messages=MESSAGES, **fields), spoken)


def constraint(spoken: AnswerFormat | None, **fields: Any) -> Constraint:
    found = grammar(spoken, **fields)
    assert found is not None
    return demo_grammars().compile(found.text)


def check(constraint: Constraint, *, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not fits(constraint, text)] == []
    assert [text for text in bad if fits(constraint, text)] == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "auto"},
        {"tools": TOOLS, "tool_choice": "none", "parallel_tool_calls": False},
        {"parallel_tool_calls": False},
    ],
)
def test_mostly_anything_goes(fields: dict[str, Any]) -> None:
    assert grammar(answer_format(), **fields) is None
    assert grammar(None, **fields) is None


class TestContent:
    @pytest.mark.parametrize(
        ("wanted", "good", "bad"),
        [
            (NUMBER, ["12"], ["", "a1"]),
            (GbnfGrammar(type="gbnf", grammar='root ::= "a" | "b"'), ["a"], ["ab"]),
            (LarkGrammar(type="lark", grammar='start: "a" | b\nb: "b"+'), ["a", "bb"], ["ab"]),
            (JsonSchemaGrammar(type="json_schema", schema=PERSON), [ANN], ["{}", "Ann is 7"]),
            (JsonSchemaGrammar(type="json_schema", schema=OPEN), [ANN], [MORE]),
            (
                JsonSchemaGrammar(type="json_schema", schema=OPEN | {"additionalProperties": True}),
                [ANN, MORE],
                ["{}"],
            ),
        ],
    )
    def test_is_as_the_grammar_says(self, wanted: Any, good: list[str], bad: list[str]) -> None:
        for spoken in (None, answer_format(), answer_format("plain")):
            check(constraint(spoken, grammar=wanted), good=good, bad=bad)

    def test_comes_after_open_reasoning(self) -> None:
        check(
            constraint(answer_format(is_thinking=True), grammar=NUMBER),
            good=["so 1 {</think>12", "</think>\n\n12", "a\nb</think>\n1"],
            bad=["12", "so", "so</think>", "so</think>twelve", "</think>1</think>2"],
        )

    def test_may_come_after_reasoning(self) -> None:
        check(
            constraint(answer_format(may_think=True), grammar=NUMBER),
            good=["12", "<think>\nso\n</think>\n\n12"],
            bad=["<think>12", "<think></think>", "so</think>12"],
        )

    def test_does_not_come_after_reasoning_where_there_is_none(self) -> None:
        check(constraint(answer_format(), grammar=NUMBER), good=["12"], bad=["<think></think>12"])

    def test_stands_in_the_final_channel(self) -> None:
        check(
            constraint(answer_format("gpt-oss"), grammar=NUMBER),
            good=[
                "<|channel|>final<|message|>12",
                "<|channel|>analysis<|message|>so<|end|><|start|>assistant"
                "<|channel|>final<|message|>12",
            ],
            bad=["12", "<|channel|>final<|message|>so", "<|channel|>analysis<|message|>12"],
        )

    def test_with_tools_is_one_way_to_answer(self) -> None:
        check(
            constraint(answer_format(), grammar=NUMBER, tools=TOOLS),
            good=["12", GREET, f"{NOW}\n{NOW}"],
            bad=["so", f"12{NOW}"],
        )

    def test_may_be_wrong_in_gbnf(self) -> None:
        with pytest.raises(InvalidRequest, match="no rule `item`") as caught:
            grammar(None, grammar=GbnfGrammar(type="gbnf", grammar="root ::= item"))
        assert caught.value.field == "grammar.grammar"

    def test_cannot_go_on_beyond_its_end(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            grammar(None, grammar=NUMBER, ignore_eos=True)
        assert caught.value.field == "ignore_eos"


class TestCalls:
    def test_have_to_be_made(self) -> None:
        check(
            constraint(answer_format(may_think=True), tools=TOOLS, tool_choice="required"),
            good=[GREET, f"{NOW}\n{GREET}\n{NOW}", f"<think>hm</think>\n\n{NOW}"],
            bad=["", "Hello", f"Hello {NOW}", f"{NOW} Hello", NOW.replace("now", "noo")],
        )

    def test_of_one_function_are_one_call(self) -> None:
        choice = NamedTool(name="now")
        check(
            constraint(answer_format(), tools=TOOLS, tool_choice=choice),
            good=[NOW],
            bad=[GREET, f"{NOW}\n{GREET}", f"{NOW}\n{NOW}"],
        )

    def test_have_the_arguments_that_the_schema_describes(self) -> None:
        check(
            constraint(answer_format(), tools=TOOLS, tool_choice="required"),
            good=[GREET],
            bad=[
                GREET.replace(ANN, "{}"),
                GREET.replace("7", '"7"'),
                GREET.replace("7}", '7, "more": 1}'),
                NOW.replace("{}", '{"a": 1}'),
            ],
        )

    def test_one_at_most(self) -> None:
        check(
            constraint(
                answer_format(), tools=TOOLS, tool_choice="required", parallel_tool_calls=False
            ),
            good=[NOW],
            bad=[f"{NOW}\n{NOW}", f"{NOW}{NOW}"],
        )

    def test_one_of_a_model_that_is_told_of_tools_unless_more_are_asked_for(self) -> None:
        told = replace(answer_format(), is_told=True)
        forced: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"}
        check(constraint(told, **forced), good=[NOW], bad=[f"{NOW}\n{NOW}"])
        check(
            constraint(told, **forced, parallel_tool_calls=True),
            good=[NOW, "\n".join([NOW] * MOST_TOLD)],
            bad=["\n".join([NOW] * (MOST_TOLD + 1))],
        )

    def test_one_or_none(self) -> None:
        check(
            constraint(answer_format(may_think=True), tools=TOOLS, parallel_tool_calls=False),
            good=["", "Hello", NOW, f"Well: {GREET}", f"<think>so</think>\nOh {NOW}"],
            bad=[f"{NOW}\n{NOW}", f"{NOW}Hello", "Hello <tool_call>", f"Well: {NOW}{GREET}"],
        )

    def test_of_strict_functions_are_held_to_their_schemas(self) -> None:
        check(
            constraint(answer_format(), tools=STRICT),
            good=["Hello", GREET, f"Well: {GREET}\n{GREET}"],
            bad=[GREET.replace("7", '"7"'), NOW],
        )

    def test_are_written_as_the_family_does(self) -> None:
        fields = {"tools": TOOLS, "tool_choice": "required"}
        check(
            constraint(answer_format("llama"), **fields),
            good=[f'{{"name": "greet", "parameters": {ANN}}}'],
            bad=[GREET],
        )
        check(
            constraint(answer_format("mistral", "[TOOL_CALLS][ARGS]"), **fields),
            good=["[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}"],
            bad=["[TOOL_CALLS]now{}"],
        )
        check(
            constraint(answer_format("kimi"), **fields),
            good=[
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
                "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
            ],
            bad=["<|tool_calls_section_begin|><|tool_calls_section_end|>"],
        )
        check(
            constraint(answer_format("gpt-oss"), **fields),
            good=["<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"],
            bad=["<|channel|>final<|message|>now"],
        )

    @pytest.mark.parametrize(
        ("family", "template", "now", "greet", "wrong"),
        [
            (
                "qwen",
                "<function=",
                "<tool_call>\n<function=now>\n</function>\n</tool_call>",
                "<tool_call>\n<function=greet>\n<parameter=name>\nAnn <b>\n</parameter>\n"
                "<parameter=age>\n7\n</parameter>\n</function>\n</tool_call>",
                ("7", "seven"),
            ),
            (
                "glm",
                "",
                "<tool_call>now</tool_call>",
                "<tool_call>greet\n<arg_key>name</arg_key>\n<arg_value>Ann</arg_value>\n"
                "<arg_key>age</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
                ("<arg_key>age</arg_key>\n<arg_value>7</arg_value>\n", ""),
            ),
            (
                "gemma",
                "",
                "<|tool_call>call:now{}<tool_call|>",
                '<|tool_call>call:greet{age:7,name:<|"|>Ann<|"|>}<tool_call|>',
                ('<|"|>Ann<|"|>', "Ann"),
            ),
        ],
    )
    def test_in_a_notation_of_its_own(
        self, family: str, template: str, now: str, greet: str, wrong: tuple[str, str]
    ) -> None:
        spoken = answer_format(family, template)
        between = "" if family == "gemma" else "\n"
        bad = [greet.replace(*wrong), now.replace("now", "greet"), f"{now}!", ""]
        check(
            constraint(spoken, tools=TOOLS, tool_choice="required"),
            good=[now, greet, f"\n{greet}{between}{now}"],
            bad=[*bad, f"Well: {now}"],
        )
        check(
            constraint(spoken, tools=TOOLS, parallel_tool_calls=False),
            good=["Hello", f"Well: {greet}", now],
            bad=[greet.replace(*wrong), f"{now}{now}", f"{now}\n{now}"],
        )

    def test_that_are_only_thought_of_are_none(self) -> None:
        check(
            constraint(answer_format(may_think=True), tools=TOOLS, parallel_tool_calls=False),
            good=[f"<think>not <tool_call>, no</think>{NOW}", f"\n<think>a {NOW}</think>Hello"],
            bad=[f"<think>so {NOW}"],
        )

    def test_without_a_marker_are_told_from_text_by_their_beginning(self) -> None:
        check(
            constraint(answer_format("llama"), tools=TOOLS, parallel_tool_calls=False),
            good=["Hello {}", '{"name": "now", "parameters": {}}'],
            bad=['{"name": "now"}', '{"name": "now", "parameters": {}}; {"name": "now"}', "[1]"],
        )

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"parallel_tool_calls": False}, "parallel_tool_calls"),
            ({"grammar": NUMBER}, "grammar"),
        ],
    )
    @pytest.mark.parametrize("family", ["minimax-m3", "plain"])
    def test_in_a_notation_that_nobody_knows_cannot_be_had(
        self, family: str, fields: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(NotSupported) as caught:
            grammar(answer_format(family), tools=TOOLS, **fields)
        assert caught.value.field == field

    @pytest.mark.parametrize("family", ["minimax-m3", "plain"])
    def test_that_are_forced_are_json_in_its_place(self, family: str) -> None:
        greet = f'{{"name": "greet", "arguments": {ANN}}}'
        now = '{"name": "now", "arguments": {}}'
        check(
            constraint(answer_format(family), tools=TOOLS, tool_choice="required"),
            good=[f"[{greet}]", f"[{now}, {greet}]", f"\n[{now}]"],
            bad=[greet, "[]", "Hello", f"[{now}] and", '[{"name": "now", "arguments": 1}]', GREET],
        )
        check(
            constraint(
                answer_format(family),
                tools=TOOLS,
                tool_choice=NamedTool(name="now"),
                parallel_tool_calls=False,
            ),
            good=[f"[{now}]"],
            bad=[f"[{greet}]", f"[{now}, {now}]"],
        )

    def test_that_are_forced_come_after_reasoning(self) -> None:
        thinking = answer_format("exaone", is_thinking=True)
        check(
            constraint(thinking, tools=TOOLS, tool_choice="required"),
            good=['So.</thought>\n[{"name": "now", "arguments": {}}]'],
            bad=['[{"name": "now", "arguments": {}}]', "So.</thought>Hello"],
        )

    def test_of_strict_functions_are_free_where_they_cannot_be_held(self) -> None:
        assert grammar(answer_format("minimax-m3"), tools=STRICT) is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"tool_choice": "required"},
            {"tool_choice": "required", "tools": ()},
            {"tool_choice": "required", "tools": ({"type": "function"},)},
            {"tool_choice": NamedTool(name="never"), "tools": TOOLS},
            {"tool_choice": NamedTool(name="never")},
        ],
    )
    def test_of_what_is_not_there_are_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidRequest) as caught:
            grammar(answer_format(), **fields)
        assert caught.value.field == "tool_choice"


def test_schemas_are_told_with_their_places() -> None:
    found = grammar(answer_format(), tools=TOOLS + STRICT, tool_choice="required")
    assert found is not None
    assert found.field == "tools"
    assert [(each.field, each.is_lenient) for each in found.schemas] == [
        ("tools[0].function.parameters", True),
        ("tools[1].function.parameters", True),
        ("tools[2].function.parameters", False),
    ]
    assert json.loads(found.text)["grammars"]


def with_parameters(*parameters: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"type": "function", "function": {"name": f"f{n}", "parameters": each}}
        for n, each in enumerate(parameters)
    )


LONG = {"enum": ["x" * 100] * 3000}
MANY = {
    "$defs": {"d": {"anyOf": [{"type": "integer", "title": str(n)} for n in range(1900)]}},
    "type": "object",
    "properties": {f"p{n}": {"$ref": "#/$defs/d"} for n in range(1000)},
}


@pytest.mark.parametrize(
    ("family", "fields", "field"),
    [
        ("qwen", {"tools": with_parameters(LONG, LONG)}, "tools[1].function.parameters"),
        ("glm", {"tools": with_parameters(LONG, LONG)}, "tools[1].function.parameters"),
        ("glm", {"tools": with_parameters(MANY)}, "tools"),
        ("gemma", {"tools": with_parameters(MANY)}, "tools"),
    ],
)
def test_what_is_too_much_work_is_refused_by_name(
    family: str, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"too much work|characters; at most") as caught:
        grammar(answer_format(family), tool_choice="required", **fields)
    assert caught.value.field == field


def test_a_schema_that_is_too_long_is_refused_by_name() -> None:
    schema = JsonSchemaGrammar(type="json_schema", schema={"anyOf": [LONG, LONG]})
    with pytest.raises(InvalidRequest, match="characters; at most") as caught:
        grammar(None, grammar=schema)
    assert caught.value.field == "grammar.schema"
