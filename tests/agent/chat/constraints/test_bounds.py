"""What a constraint may be at most, whatever its notation."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from arriero.agent.chat.constraints.answer_grammar import answer_grammar
from arriero.agent.chat.constraints.bounds import (
    MAX_CHAIN,
    MAX_GROUPS,
    MAX_NESTED,
    MAX_REPEATED,
    MAX_RULES,
    check_grammar,
    check_schema,
)
from arriero.agent.chat.constraints.closed_schema import closed
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    Grammar,
    JsonSchemaGrammar,
    LarkGrammar,
    RegexGrammar,
)
from tests.agent.chat.constraints.test_constrain import FORMAT
from tests.agent.chat.schemas import SCHEMAS

Schema = dict[str, Any]


def nested(levels: int) -> Schema:
    """So many lists and objects, an odd number, within each other."""
    schema: Schema = {}
    for _ in range(levels // 2):
        schema = {"anyOf": [schema]}
    return schema


def chain(length: int, link: Callable[[Schema], Schema]) -> Schema:
    links = {f"d{n}": link({"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": {"type": "null"}}}


LINKS: dict[str, Callable[[Schema], Schema]] = {
    "alone": lambda each: each,
    "of an object": lambda each: {"properties": {"a": each}},
    "of two parts": lambda each: {"allOf": [each, {"properties": {"a": {}}}]},
    "of alternatives": lambda each: {"anyOf": [each, {"type": "null"}]},
    "of items": lambda each: {"items": each},
}


def is_within(check: Callable[[], None]) -> bool:
    try:
        check()
    except InvalidRequest as error:
        assert error.field == "here"
        assert error.message.startswith("`here` cannot be served: it has more than ")
        return False
    return True


def test_the_levels_of_a_schema() -> None:
    assert is_within(lambda: check_schema(nested(MAX_NESTED - 1), "here"))
    assert not is_within(lambda: check_schema(nested(MAX_NESTED + 1), "here"))


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_the_levels_that_references_lead_to(link: Callable[[Schema], Schema]) -> None:
    short = chain(MAX_CHAIN // 4, link)
    assert is_within(lambda: check_schema(short, "here"))
    assert closed(short)
    assert not is_within(lambda: check_schema(chain(MAX_CHAIN, link), "here"))


def test_references_that_lead_back() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#/properties/left"}}}
    loops = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    odd = {"$ref": "#/anyOf/0", "anyOf": [{"$ref": "#/anyOf/7"}, {"$ref": "elsewhere"}]}
    for schema in (tree, loops, odd):
        assert is_within(lambda schema=schema: check_schema(schema, "here"))  # type: ignore[misc]


@given(schema=SCHEMAS)
def test_schemas_as_people_write_them(schema: Schema) -> None:
    check_schema(schema, "here")


@pytest.mark.parametrize(
    "most",
    [
        "a?" * MAX_REPEATED,
        r"\?[?*+{(]" * 2 * MAX_REPEATED,
        "(" * MAX_GROUPS + "a" + ")" * MAX_GROUPS,
        "(a)" * MAX_REPEATED,
        "start: a\n" + "\n".join(f"r{n}: a" for n in range(MAX_RULES - 1)),
    ],
    ids=["repetitions", "classes", "groups within each other", "groups", "rules"],
)
def test_grammars_and_regular_expressions(most: str) -> None:
    assert is_within(lambda: check_grammar(most, "here"))
    more = {"(": f"({most})", "s": f"{most}\nR_2[lazy, stop=/:/]: a"}.get(most[0], f"{most}a?")
    is_class = most.startswith("\\")
    assert is_within(lambda: check_grammar(more, "here")) is is_class
    assert is_within(lambda: check_schema({"items": {"pattern": most}}, "here"))
    for keyword in ({"pattern": more}, {"patternProperties": {more: {}}}):
        found = is_within(lambda keyword=keyword: check_schema({"items": keyword}, "here"))  # type: ignore[misc]
        assert found is is_class


def test_a_line_that_could_begin_a_rule_takes_linear_time() -> None:
    """With the square of its length it would take seconds, and all threads would wait."""
    assert is_within(lambda: check_grammar("a[" * 32_000, "here"))


DEEP = chain(MAX_CHAIN, LINKS["alone"])
MESSAGES = (ChatMessage(role="user", content="hi"),)


@pytest.mark.parametrize(
    ("grammar", "field"),
    [
        (JsonSchemaGrammar(type="json_schema", schema=DEEP), "grammar.schema"),
        (RegexGrammar(type="regex", pattern="a?" * 30_000), "grammar.pattern"),
        (GbnfGrammar(type="gbnf", grammar='root ::= "a" ' + "x? " * 5000), "grammar.grammar"),
        (LarkGrammar(type="lark", grammar="a:b\n" * 5000), "grammar.grammar"),
    ],
)
def test_every_notation_is_bounded(grammar: Grammar, field: str) -> None:
    with pytest.raises(InvalidRequest, match="more than") as caught:
        answer_grammar(GenerateRequest(prompt="x", grammar=grammar), None)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "choices", [{"tool_choice": "required"}, {"parallel_tool_calls": False}, {}], ids=json.dumps
)
def test_schemas_of_tools_are_bounded(choices: dict[str, Any]) -> None:
    tool = {"function": {"name": "f", "parameters": DEEP, "strict": True}}
    request = GenerateRequest(messages=MESSAGES, tools=(tool,), **choices)
    with pytest.raises(InvalidRequest, match="more than") as caught:
        answer_grammar(request, FORMAT)
    assert caught.value.field == "tools[0].function.parameters"
