"""vLLM's and llama-server's fields at OpenAI's paths."""

import json
import re
from typing import Any

import pytest

from arriero.balancer.api.openai.completions.extras import MAX_ALTERNATIVES
from arriero.balancer.api.openai.completions.requests import parse_chat, parse_completion
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import GbnfGrammar, GenerateRequest, JsonSchemaGrammar, RegexGrammar

SCHEMA = {"type": "object", "required": ["a"]}


def chat(**body: Any) -> GenerateRequest:
    messages = [{"role": "user", "content": "Hi"}]
    return parse_chat(json.dumps({"messages": messages} | body).encode()).requests[0]


def completion(**body: Any) -> GenerateRequest:
    return parse_completion(json.dumps({"prompt": "x"} | body).encode()).requests[0]


@pytest.mark.parametrize("parse", [chat, completion])
@pytest.mark.parametrize(
    ("own", "within", "value", "grammar"),
    [
        ("guided_json", "json", SCHEMA, JsonSchemaGrammar(type="json_schema", schema=SCHEMA)),
        (
            "guided_json",
            "json",
            json.dumps(SCHEMA),
            JsonSchemaGrammar(type="json_schema", schema=SCHEMA),
        ),
        ("guided_regex", "regex", "a+", RegexGrammar(type="regex", pattern="a+")),
        (
            "guided_grammar",
            "grammar",
            'root ::= "a"',
            GbnfGrammar(type="gbnf", grammar='root ::= "a"'),
        ),
    ],
)
def test_what_the_answer_has_to_be(
    parse: Any, own: str, within: str, value: Any, grammar: object
) -> None:
    assert parse(**{own: value}).grammar == grammar
    assert parse(structured_outputs={within: value}).grammar == grammar


def test_any_object() -> None:
    asked = chat(structured_outputs={"json_object": True})
    assert asked.grammar == JsonSchemaGrammar(type="json_schema", schema={"type": "object"})


def test_one_of_several_texts() -> None:
    texts = ["yes", "no?", "a|b", "ü [x]\\"]
    grammar = chat(guided_choice=texts).grammar
    assert isinstance(grammar, RegexGrammar)
    assert all(re.fullmatch(grammar.pattern, text) for text in texts)
    assert not any(re.fullmatch(grammar.pattern, text) for text in ("n", "a", "b", "yesno?"))


@pytest.mark.parametrize("parse", [chat, completion])
def test_other_names_for_what_we_have(parse: Any) -> None:
    asked = parse(repetition_penalty=1.2, n_predict=7)
    assert (asked.repeat_penalty, asked.max_tokens) == (1.2, 7)
    assert parse(n_predict=-1).max_tokens is None


@pytest.mark.parametrize("parse", [chat, completion])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"guided_json": "{oops"}, "guided_json"),
        ({"guided_json": "3"}, "guided_json"),
        ({"guided_json": "[" * 100_000}, "guided_json"),
        ({"guided_json": SCHEMA, "guided_regex": "a"}, "guided_json"),
        ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "structured_outputs.regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["x"] * (MAX_ALTERNATIVES + 1)}, "guided_choice"),
        ({"guided_choice": ["x" * 1000] * 100}, "guided_choice"),
        ({"repeat_penalty": 1.1, "repetition_penalty": 1.1}, "repeat_penalty"),
        ({"max_tokens": 3, "n_predict": 3}, "max_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"stop_token_ids": [-3]}, "stop_token_ids[0]"),
        ({"include_stop_str_in_output": 1}, "include_stop_str_in_output"),
    ],
)
def test_what_is_wrong_is_named(parse: Any, body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**body)
    assert caught.value.field == field


def test_errors_of_grammars_have_the_clients_name() -> None:
    requested = parse_completion(json.dumps({"prompt": "x", "guided_json": SCHEMA}).encode())
    error = InvalidRequest("`grammar.schema.not`: no", field="grammar.schema.not")
    assert requested.field_names.renamed(error).field == "guided_json.not"
