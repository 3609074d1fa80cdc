"""vLLM's and llama-server's fields at OpenAI's paths."""

import json
import re
from typing import Any

import pytest

from arriero.balancer.api.openai.completions.extras import MAX_ALTERNATIVES
from arriero.balancer.api.openai.completions.requests import parse_chat, parse_completion
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import (
    GbnfGrammar,
    GenerateRequest,
    JsonSchemaGrammar,
    LarkGrammar,
    RegexGrammar,
)

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


def response(**body: Any) -> GenerateRequest:
    return parse_response(json.dumps({"input": "Hi"} | body).encode()).request(())


LARK = 'start: "a" | "b"'
EBNF = 'root ::= "a"'


@pytest.mark.parametrize("parse", [chat, completion, response])
@pytest.mark.parametrize(
    ("body", "grammar"),
    [
        ({"json_schema": SCHEMA}, JsonSchemaGrammar(type="json_schema", schema=SCHEMA)),
        ({"json_schema": json.dumps(SCHEMA)}, JsonSchemaGrammar(type="json_schema", schema=SCHEMA)),
        ({"regex": "a+"}, RegexGrammar(type="regex", pattern="a+")),
        ({"ebnf": EBNF}, GbnfGrammar(type="gbnf", grammar=EBNF)),
        ({"grammar": EBNF}, GbnfGrammar(type="gbnf", grammar=EBNF)),
        ({"grammar": LARK}, LarkGrammar(type="lark", grammar=LARK)),
        ({"grammar": {"type": "lark", "grammar": LARK}}, LarkGrammar(type="lark", grammar=LARK)),
        ({"guided_grammar": LARK}, LarkGrammar(type="lark", grammar=LARK)),
        ({"structured_outputs": {"grammar": LARK}}, LarkGrammar(type="lark", grammar=LARK)),
        (
            {"guided_json": SCHEMA, "structured_outputs": {"json": SCHEMA}, "json_schema": SCHEMA},
            JsonSchemaGrammar(type="json_schema", schema=SCHEMA),
        ),
    ],
)
def test_what_other_servers_call_it(parse: Any, body: dict[str, Any], grammar: object) -> None:
    """One grammar that is spelt in several ways is one."""
    assert parse(**body).grammar == grammar


@pytest.mark.parametrize("parse", [chat, completion, response])
def test_what_bounds_the_tokens(parse: Any) -> None:
    asked = parse(top_k=-1, allowed_token_ids=[5, 7], bad_words=["no"], truncate_prompt_tokens=9)
    assert (asked.top_k, asked.allowed_token_ids, asked.bad_words) == (0, (5, 7), ("no",))
    assert asked.truncate_prompt_tokens == 9
    assert parse(top_k=3).top_k == 3
    assert parse().top_k is None


@pytest.mark.parametrize(
    ("parse", "field"),
    [
        (chat, "max_tokens"),
        (chat, "max_completion_tokens"),
        (completion, "max_tokens"),
        (response, "max_output_tokens"),
    ],
)
def test_no_bound_at_all(parse: Any, field: str) -> None:
    assert parse(**{field: -1}).max_tokens is None
    assert parse(**{field: 4}).max_tokens == 4
    with pytest.raises(InvalidRequest, match=f"`{field}`"):
        parse(**{field: -2})


@pytest.mark.parametrize("parse", [chat, completion, response])
def test_no_model_to_name(parse: Any) -> None:
    assert parse(model="").model is None


@pytest.mark.parametrize("parse", [chat, completion, response])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"use_beam_search": True}, "use_beam_search"),
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"logits_processors": ["x"]}, "logits_processors"),
        ({"structural_tag": "{}"}, "structural_tag"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"samplers": ["top_k", "infill"]}, "samplers[1]"),
        ({"samplers": ["nonesuch"]}, "samplers[0]"),
        ({"samplers": ["adaptive_p"], "adaptive_target": 1.5}, "adaptive_target"),
        ({"samplers": ["top_k"] * 65}, "samplers"),
        ({"top_k": -2}, "top_k"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"regex": "a", "ebnf": EBNF}, "regex"),
        ({"json_schema": "{oops"}, "json_schema"),
        ({"grammar": {"type": "lark"}}, "grammar.grammar"),
        ({"grammar": 3}, "grammar"),
    ],
)
def test_what_would_change_the_answer_is_never_ignored(
    parse: Any, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "body", [{"use_beam_search": False}, {"length_penalty": 1.0}, {"prediction": {"type": "x"}}]
)
def test_what_does_not_is_taken(body: dict[str, Any]) -> None:
    assert chat(**body) == chat()


def test_a_prompt_that_is_cut_is_not_echoed() -> None:
    with pytest.raises(InvalidRequest) as caught:
        completion(echo=True, truncate_prompt_tokens=4)
    assert caught.value.field == "echo"


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
        ({"max_tokens": 3, "n_predict": 4}, "max_tokens"),
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


@pytest.mark.parametrize(
    ("body", "field"), [({"grammar": LARK}, "grammar"), ({"ebnf": EBNF}, "ebnf")]
)
def test_a_grammar_that_is_a_text_has_no_parts(body: dict[str, Any], field: str) -> None:
    requested = parse_completion(json.dumps({"prompt": "x"} | body).encode())
    error = InvalidRequest("`grammar.grammar`: no", field="grammar.grammar")
    assert requested.field_names.renamed(error).field == field


ALL = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


@pytest.mark.parametrize("parse", [chat, completion])
@pytest.mark.parametrize(
    ("body", "order"),
    [
        ({"samplers": []}, ()),
        ({"samplers": ALL}, ()),
        ({"samplers": "edskypmxt"}, ()),
        ({"samplers": [*ALL, "adaptive_p"], "adaptive_target": -0.01, "adaptive_decay": 0.9}, ()),
        ({"samplers": ALL, "adaptive_target": 0.5}, tuple(ALL)),
        ({"samplers": "ma", "adaptive_target": 0.5}, ("min_p", "adaptive_p")),
        ({"samplers": ["top-k", "tfs_z", "typical_p", "mirostat"]}, ("top_k", "typ_p")),
        ({"samplers": ["temp", "top_k", "temperature"]}, ("temperature", "top_k")),
        ({"samplers": "tk"}, ("temperature", "top_k")),
    ],
)
def test_samplers_in_any_order(parse: Any, body: dict[str, Any], order: tuple[str, ...]) -> None:
    assert parse(**body).samplers == order
