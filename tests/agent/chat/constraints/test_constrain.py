"""From a request to a compiled grammar, or to what is wrong with it and where."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.constraints.answer_grammar import AnswerFormat
from arriero.agent.chat.constraints.constrain import constrain
from arriero.agent.chat.families.families import family_named
from arriero.agent.engine.grammar.constraint import Constraint
from arriero.agent.engine.grammar.grammars import Ended, Grammars
from arriero.agent.engine.llama.vocab import grammar_tokens
from arriero.shared.errors import InvalidRequest, NotSupported
from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    Grammar,
    JsonSchemaGrammar,
    RegexGrammar,
)
from tests.agent.chat.hostile import CONSTRAINTS as HOSTILE
from tests.agent.chat.schemas import SCHEMAS
from tests.agent.saying import at_once, demo_grammars, demo_vocab, say

FORMAT = AnswerFormat(family=family_named("qwen"), template="", is_thinking=False, may_think=False)


def schema_grammar(schema: dict[str, Any]) -> JsonSchemaGrammar:
    return JsonSchemaGrammar(type="json_schema", schema=schema)


def constrained(grammar: Grammar | None) -> Constraint | None:
    held = constrain(GenerateRequest(prompt="x", grammar=grammar), None, demo_grammars())
    return held.constraint if held else None


def refusal(grammar: Grammar) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        constrained(grammar)
    assert caught.value.message.startswith(f"`{caught.value.field}` cannot be served: ")
    return caught.value


class EndsWhileItIsJudged:
    """The demo's grammars, for a request that ends after its grammar was refused."""

    def compile(self, grammar: str, ended: Ended) -> Constraint:
        return demo_grammars().compile(grammar, ended)

    @contextmanager
    def judging(self, ended: Ended) -> Iterator[Callable[[str], str | None]]:
        with demo_grammars().judging(ended) as complaint:
            ended.set_result(None)
            yield complaint


def test_a_request_that_ends_while_its_fault_is_looked_for() -> None:
    grammar = schema_grammar({"properties": {"a": {"items": {"type": "strig"}}}})
    request = GenerateRequest(prompt="x", grammar=grammar)
    with pytest.raises(InvalidRequest):
        constrain(request, None, EndsWhileItIsJudged(), Future())  # type: ignore[arg-type]


def test_anything_goes_without_a_grammar() -> None:
    assert constrained(None) is None


@pytest.mark.parametrize(
    ("grammar", "field", "finding"),
    [
        (
            schema_grammar({"properties": {"a": {"items": {"type": "strig"}}}}),
            "grammar.schema.properties.a.items",
            "strig",
        ),
        (
            schema_grammar({"not": {"type": "null"}}),
            "grammar.schema",
            "not",
        ),
        (
            schema_grammar(
                {"type": "object", "properties": {"a": False}, "required": ["a"]},
            ),
            "grammar.schema",
            "unsatisfiable",
        ),
        (RegexGrammar(type="regex", pattern="(a"), "grammar.pattern", "unclosed group"),
        (RegexGrammar(type="regex", pattern=r"[^\s\S]"), "grammar.pattern", "no text"),
        (GbnfGrammar(type="gbnf", grammar='root ::= "a" root'), "grammar.grammar", "Too many"),
    ],
)
def test_what_cannot_be_served_is_told_with_its_place(
    grammar: Grammar, field: str, finding: str
) -> None:
    error = refusal(grammar)
    assert error.field == field
    assert finding in error.message
    assert "\n" not in error.message


def test_a_long_reason_is_cut() -> None:
    message = refusal(schema_grammar({"type": "x" * 10_000})).message
    assert "xxx" in message
    assert len(message) < 400


def test_a_tools_schema_is_told_by_its_tool() -> None:
    tools = (
        {"type": "function", "function": {"name": "good"}},
        {"name": "bad", "parameters": {"properties": {"a": {"type": "strig"}}}},
    )
    messages = (ChatMessage(role="user", content="hi"),)
    request = GenerateRequest(messages=messages, tools=tools, tool_choice="required")
    with pytest.raises(InvalidRequest) as caught:
        constrain(request, FORMAT, demo_grammars())
    assert caught.value.field == "tools[1].parameters.properties.a"


def test_without_a_vocabulary_nothing_is_constrained() -> None:
    request = GenerateRequest(prompt="x", grammar=RegexGrammar(type="regex", pattern="a"))
    with pytest.raises(NotSupported) as caught:
        constrain(request, None, None)
    assert caught.value.field == "grammar"


# ---- whatever a model says under a schema is valid


@given(schema=SCHEMAS, seed=st.integers(0, 2**31))
def test_whatever_is_said_under_a_schema_is_valid(schema: dict[str, Any], seed: int) -> None:
    constraint = constrained(schema_grammar(schema))
    assert constraint is not None
    said = say(constraint, seed, max_tokens=250)
    assert said.failure is None
    if said.is_whole:
        jsonschema.validate(json.loads(said.text), schema)


@pytest.mark.parametrize("template", ["", "<function="])
def test_what_calls_are_not_held_to_is_told(template: str) -> None:
    text = {"type": "string", "not": {"const": "x"}}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": text, "b": text}}}
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content="hi"),), tools=(tool,), tool_choice="required"
    )
    answer_format = AnswerFormat(
        family=family_named("qwen"), template=template, is_thinking=False, may_think=False
    )
    held = constrain(request, answer_format, demo_grammars())
    assert held is not None
    assert held.notice is not None
    assert held.notice.message.startswith(
        "`tools[0].parameters.properties.a`: `not` is not enforced, and 1 more are not"
    )


# ---- whatever nests, refers and repeats as nobody means it is served, or refused


@cache
def impatient() -> Grammars:
    return Grammars(grammar_tokens(demo_vocab()), seconds=0.3)


@given(choices=HOSTILE, seed=st.integers(0, 2**31))
def test_each_is_served_or_refused(choices: dict[str, Any], seed: int) -> None:
    messages = (ChatMessage(role="user", content="hi"),)
    request = GenerateRequest(messages=messages, **choices)
    try:
        held = constrain(request, FORMAT, impatient())
    except InvalidRequest as error:
        assert error.field
        return
    assert held is not None
    state, rng = held.constraint.begin(at_once), np.random.default_rng(seed)
    for _ in range(12):
        row = rng.normal(size=demo_vocab().size).astype(np.float32)
        state.restrict(row)
        token = int(row.argmax())
        if token in demo_vocab().end_tokens:
            break
        state.accept(token)


KEYWORDS: list[dict[str, Any]] = [
    {"type": "array", "uniqueItems": True},
    {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"type": "string", "not": {"const": "a"}},
    {"if": {"type": "string"}, "then": {"minLength": 1}},
    {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]},
]


@pytest.mark.parametrize("schema", KEYWORDS)
def test_what_cannot_be_enforced_is_refused_only_if_it_is_strict(schema: dict[str, Any]) -> None:
    assert refusal(schema_grammar(schema)).field == "grammar.schema"
    lenient = JsonSchemaGrammar(type="json_schema", schema=schema, strict=False)
    held = constrain(GenerateRequest(prompt="x", grammar=lenient), None, demo_grammars())
    assert held is not None
    if "oneOf" not in schema:
        assert held.notice is not None
        assert held.notice.message.startswith("`grammar.schema`: ")
