import pytest

from arriero.agent.upstream.protocol import dialects
from arriero.agent.upstream.protocol.dialects import (
    ARRIERO,
    KINDS,
    LLAMA_SERVER,
    LM_STUDIO,
    OLLAMA,
    OTHER,
    SGLANG,
    VLLM,
    Dialect,
    dialect_of,
)
from arriero.shared.inference.abilities import ABILITIES
from arriero.shared.sampling import SAMPLERS


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


def test_the_kinds_are_all_dialects() -> None:
    every = [each for each in vars(dialects).values() if isinstance(each, Dialect)]
    assert sorted(each.kind for each in KINDS) == sorted(each.kind for each in every)


@pytest.mark.parametrize("dialect", KINDS, ids=lambda each: each.kind)
def test_dialects_speak_of_fields_and_abilities_that_there_are(dialect: Dialect) -> None:
    assert dialect.abilities <= ABILITIES
    assert dialect.renamed.keys() <= dialect.sampling.keys()


@pytest.mark.parametrize(
    ("dialect", "known"),
    [
        (OTHER, set()),
        (OLLAMA, set()),
        (LM_STUDIO, {"top_k", "min_p", "repeat_penalty"}),
        (SGLANG, {"top_k", "min_p", "repetition_penalty", "ignore_eos"}),
        (
            VLLM,
            {"top_k", "min_p", "repetition_penalty", "ignore_eos", "stop_token_ids"}
            | {"include_stop_str_in_output", "min_tokens", "allowed_token_ids", "bad_words"},
        ),
    ],
    ids=lambda each: each.kind if isinstance(each, Dialect) else "",
)
def test_the_samplers_of_other_servers(dialect: Dialect, known: set[str]) -> None:
    assert {*dialect.sampling.values()} == known


def test_servers_of_llama_cpp_know_its_samplers() -> None:
    stops = {"stop_token_ids", "include_stop_str_in_output", "min_tokens"}
    stops |= {"allowed_token_ids", "bad_words"}
    beyond = {name for name, sampler in SAMPLERS.items() if not sampler.is_standard}
    assert dict(ARRIERO.sampling) == {name: name for name in beyond}
    assert dict(LLAMA_SERVER.sampling) == {name: name for name in beyond - stops}


@pytest.mark.parametrize("dialect", KINDS, ids=lambda each: each.kind)
def test_what_a_dialect_can_do_it_has_names_for(dialect: Dialect) -> None:
    """Otherwise a request would be taken, and its field left out."""
    abilities = dialect.abilities
    for name, sampler in SAMPLERS.items():
        is_known = name in dialect.sampling or sampler.is_standard or sampler.ability is None
        assert sampler.ability not in abilities or is_known, name
    assert ("regex" in abilities) == (dialect.regex is not None)
    assert ("gbnf" in abilities) == (dialect.gbnf is not None)
    assert ("lark" in abilities) == (dialect.lark is not None)
    assert ("thinking" in abilities) == dialect.has_template
    if "continue_final_message" in abilities:
        assert dialect.continues
