"""Each sampling field stands where people look for it; what is generated is tested to be fresh."""

import re
from dataclasses import fields

from arriero.shared.inference import GenerateRequest
from arriero.shared.sampling import SAMPLERS
from docs.generate.reference import ROOT
from docs.generate.sampling_fields import SCHEMAS, abilities_table, fields_table, form_fields

BESIDE_THE_COMPOSER = {"temperature": "temperature", "stop": "stop-strings"}
"""Fields with an input that is no part of the list, and its id."""

NOT_IN_THE_FORM = {
    *("dry_sequence_breakers", "logit_bias", "stop_token_ids", "allowed_token_ids", "bad_words"),
    *("include_stop_str_in_output", "ignore_eos", "samplers"),
}
"""No numbers, and of use to programs rather than to who chats."""


def test_the_playground_has_each_field() -> None:
    missing = [
        name
        for name in SAMPLERS.keys() - BESIDE_THE_COMPOSER.keys() - NOT_IN_THE_FORM
        if f'["{name}", ' not in form_fields()
    ]
    assert not missing, f"give them a `step`, or exempt them here: {', '.join(missing)}"
    page = (ROOT / "dashboard" / "index.html").read_text()
    assert all(f'id="{each}"' in page for each in BESIDE_THE_COMPOSER.values())


def test_an_input_has_the_bounds_of_its_field() -> None:
    rows = form_fields().splitlines()
    assert '  ["top_k", 0, null, 1],' in rows
    assert '  ["top_p", 0, 1, 0.01],' in rows
    assert '  ["presence_penalty", -2, 2, 0.1],' in rows


def test_the_api_has_each_field_of_a_request_in_a_table() -> None:
    page = (ROOT / "docs" / "api" / "native.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    missing = [each.name for each in fields(GenerateRequest) if each.name not in told]
    assert set(missing) <= {"prompt", "messages"}, f"docs/api/native.md does not name {missing}"


def test_a_field_is_told_with_its_values_its_default_and_what_turns_it_off() -> None:
    rows = fields_table().splitlines()
    assert (
        "| `top_k` | integer, ≥ 0 | 40 | only this many of the likeliest tokens; 0: off |" in rows
    )
    assert "| `dry_base` | number, ≥ 1, ≤ 100 | 1.75 | the base of DRY |" in rows
    assert SCHEMAS.keys() == SAMPLERS.keys()


def test_which_servers_get_a_field() -> None:
    rows = abilities_table().splitlines()
    assert (
        "| `top_k` | `top_k`, `min_p`, `repeat_penalty` "
        "| vLLM, SGLang, llama-server, LM Studio, Arriero |"
    ) in rows
    assert "| `penalties` | `presence_penalty`, `frequency_penalty` | all |" in rows
