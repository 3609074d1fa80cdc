from dataclasses import fields

import pytest

from arriero.agent.upstream.protocol import dialects
from arriero.agent.upstream.protocol.dialects import Dialect, dialect_of
from arriero.shared.inference import GenerateRequest
from arriero.shared.inference.abilities import ABILITIES

ALL = [each for each in vars(dialects).values() if isinstance(each, Dialect)]


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("vllm", "vllm"),
        ("llamacpp", "llama-server"),
        ("library", "ollama"),
        ("organization_owner", "lm-studio"),
        ("sglang", "sglang"),
        ("arriero", "arriero"),
        ("openai", "openai"),
        ("system", "openai"),
        ("HuggingFaceH4/zephyr-7b-beta", "openai"),  # TGI names the model
        (None, "openai"),
    ],
)
def test_a_server_is_known_by_who_owns_its_models(owner: str | None, kind: str) -> None:
    assert dialect_of(owner).kind == kind


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.kind)
def test_dialects_speak_of_fields_and_abilities_that_there_are(dialect: Dialect) -> None:
    assert dialect.abilities <= ABILITIES
    assert dialect.sampling.keys() <= {field.name for field in fields(GenerateRequest)}


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.kind)
def test_what_a_dialect_can_do_it_has_names_for(dialect: Dialect) -> None:
    """Otherwise a request would be taken, and its field left out."""
    abilities, sampling = dialect.abilities, dialect.sampling
    if "top_k" in abilities:
        assert {"top_k", "min_p", "repeat_penalty"} <= sampling.keys()
    if "stop_tokens" in abilities:
        stops = {"stop_token_ids", "include_stop_str_in_output", "min_tokens"}
        assert stops <= sampling.keys()
    if "llama_samplers" in abilities:
        assert {"mirostat_tau", "dry_sequence_breakers", "typical_p"} <= sampling.keys()
    assert ("regex" in abilities) == (dialect.regex is not None)
    assert ("gbnf" in abilities) == (dialect.gbnf is not None)
    assert ("thinking" in abilities) == dialect.has_template
    if "continue_final_message" in abilities:
        assert dialect.continues
