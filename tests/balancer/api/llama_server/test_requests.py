"""Bodies of llama-server's `/completion` and `/infill`."""

import json
from typing import Any

import pytest

from arriero.balancer.api.fields.field_table import FieldNotes
from arriero.balancer.api.llama_server.requests import (
    ALL_TOKENS,
    LlamaServerRequest,
    parse_completion,
    parse_infill,
)
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import GbnfGrammar, GenerateRequest, JsonSchemaGrammar

EBNF = 'root ::= "a"'


def parsed(notes: FieldNotes | None = None, **body: Any) -> LlamaServerRequest:
    return parse_completion(json.dumps({"prompt": "x"} | body).encode(), notes)


def asked(**body: Any) -> GenerateRequest:
    return parsed(**body).request


def test_what_is_not_said_is_left_open() -> None:
    assert asked() == GenerateRequest(prompt="x", stream=False)


def test_in_its_own_words() -> None:
    request = asked(
        prompt=[1, 2],
        n_predict=5,
        seed=-1,
        repeat_last_n=-1,
        dry_penalty_last_n=-1,
        top_k=-1,
        n_probs=2,
        stop="END",
        logit_bias=[[7, 1.5], [8, False]],
        json_schema={"type": "object"},
        grammar="",
    )
    assert (request.prompt, request.max_tokens, request.seed) == ((1, 2), 5, None)
    assert (request.repeat_last_n, request.dry_penalty_last_n) == (ALL_TOKENS, ALL_TOKENS)
    assert (request.top_k, request.logprobs, request.top_logprobs) == (0, True, 2)
    assert (request.stop, request.logit_bias) == (("END",), {"7": 1.5, "8": -100.0})
    assert request.grammar == JsonSchemaGrammar(type="json_schema", schema={"type": "object"})


def test_nothing_is_said_where_nothing_is_to_be_predicted() -> None:
    assert asked(n_predict=0).prefill_only
    assert not asked(n_predict=-1).prefill_only


def test_a_grammar_is_a_text() -> None:
    assert asked(grammar=EBNF).grammar == GbnfGrammar(type="gbnf", grammar=EBNF)


def test_errors_have_its_names() -> None:
    names = parsed(grammar=EBNF).names
    assert names.renamed(InvalidRequest("no", field="grammar.grammar")).field == "grammar"
    assert names.renamed(InvalidRequest("no", field="max_tokens")).field == "n_predict"
    assert parsed().names.renamed(InvalidRequest("no", field="max_tokens")).field == "n_predict"


def test_what_has_no_effect_is_told() -> None:
    notes = FieldNotes()
    parsed(notes, cache_prompt=False, n_keep=5, id_slot=-1, timings_per_token=False)
    assert notes.names == ("cache_prompt", "n_keep")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"n_predict": -3}, "n_predict"),
        ({"logit_bias": [["a", 1]]}, "logit_bias[0]"),
        ({"n_probs": 99}, "n_probs"),
        ({"min_keep": 5}, "min_keep"),
        ({"post_sampling_probs": True}, "post_sampling_probs"),
        ({"lora": [{"id": 0}]}, "lora"),
        ({"grammar": EBNF, "json_schema": {}}, "grammar"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**body)
    assert caught.value.field is not None and caught.value.field.startswith(field)


# ---- infill


def infill(**body: Any) -> GenerateRequest:
    gap = {"input_prefix": "def f():\n", "input_suffix": "\n"}
    return parse_infill(json.dumps(gap | body).encode()).request


def test_the_gap_is_between_prefix_and_suffix() -> None:
    request = infill(prompt="    return ", n_predict=8, stop=["\n"])
    assert (request.prompt, request.suffix) == ("def f():\n    return ", "\n")
    assert (request.max_tokens, request.stop) == (8, ("\n",))
    assert infill(input_suffix="").suffix == ""


def test_texts_of_other_files_come_before() -> None:
    extra = [{"text": "x = 1", "filename": "a.py", "time": 3}, {"text": "y"}]
    request = infill(input_extra=extra)
    assert request.prompt == "--- a.py ---\nx = 1\n\n--- snippet ---\ny\n\ndef f():\n"


def test_what_editors_send_is_taken() -> None:
    request = infill(
        samplers=["top_k", "top_p", "infill"],
        top_k=40,
        top_p=0.99,
        t_max_prompt_ms=500,
        t_max_predict_ms=1000,
        n_indent=4,
        cache_prompt=True,
        response_fields=["content"],
    )
    assert request.samplers == ("top_k", "top_p")
    with pytest.raises(InvalidRequest) as caught:
        parse_infill(b'{"input_prefix": "a"}')
    assert caught.value.field == "input_suffix"
