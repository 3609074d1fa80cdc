import pytest

from arriero.agent.upstream.protocol.failures import UpstreamFault
from arriero.agent.upstream.protocol.listing import (
    ListedModel,
    NoSuchModel,
    choose,
    listed,
    shown_name,
)

VLLM = b"""{"object": "list", "data": [
 {"id": "big", "object": "model", "owned_by": "vllm", "root": "org/Big", "parent": null,
  "max_model_len": 4096},
 {"id": "large", "owned_by": "vllm", "root": "org/Big", "parent": null, "max_model_len": 4096},
 {"id": "tuned", "owned_by": "vllm", "root": "/lora", "parent": "big"}]}"""
SGLANG = b"""{"object": "list", "data": [
 {"id": "org/Big", "object": "model", "created": 1, "owned_by": "sglang", "root": "org/Big",
  "parent": null, "max_model_len": 4096},
 {"id": "tuned", "object": "model", "created": 1, "owned_by": "sglang", "root": "/lora",
  "parent": "org/Big", "max_model_len": null}]}"""
OLLAMA = b"""{"data": [{"id": "llama3:latest", "owned_by": "library"},
 {"id": "mistral:7b", "owned_by": "library"}]}"""
LLAMA = (
    b'{"models": [], "data": [{"id": "a.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 512}}]}'
)


def test_models_as_servers_list_them() -> None:
    big, large, tuned = listed(VLLM)
    assert big == ListedModel(id="big", owner="vllm", context_size=4096, root="org/Big")
    assert (large.root, tuned.is_derived) == ("org/Big", True)
    assert listed(LLAMA) == (ListedModel(id="a.gguf", owner="llamacpp", context_size=512),)
    assert listed(b'{"data": null}') == ()
    base, tuned = listed(SGLANG)
    assert base == ListedModel(id="org/Big", owner="sglang", context_size=4096, root="org/Big")
    assert (tuned.context_size, tuned.is_derived) == (0, True)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": [1]}', b'{"data": [{"id": 5}]}']
)
def test_what_is_no_list_of_models(body: bytes) -> None:
    with pytest.raises(UpstreamFault, match="/v1/models does not have the form of OpenAI's API"):
        listed(body)


def test_the_only_model_is_taken_whatever_its_aliases_and_adapters() -> None:
    assert choose(listed(VLLM), None).id == "big"
    assert choose(listed(LLAMA), None).id == "a.gguf"


def test_of_several_one_has_to_be_named() -> None:
    with pytest.raises(NoSuchModel, match="must name a model; it has llama3:latest, mistral:7b"):
        choose(listed(OLLAMA), None)


@pytest.mark.parametrize("name", ["llama3", "llama3:latest"])
def test_a_name_may_leave_out_the_tag(name: str) -> None:
    assert choose(listed(OLLAMA), name).id == "llama3:latest"


def test_an_adapter_may_be_named() -> None:
    assert choose(listed(VLLM), "tuned").id == "tuned"


def test_a_model_that_it_does_not_have() -> None:
    with pytest.raises(NoSuchModel, match="it has no model other; it has big, large, tuned"):
        choose(listed(VLLM), "other")
    with pytest.raises(NoSuchModel, match="it has no model other; it has none"):
        choose((), "other")
    with pytest.raises(NoSuchModel, match="it has no model at present"):
        choose((), None)
    many = tuple(ListedModel(id=f"m{number}") for number in range(20))
    with pytest.raises(NoSuchModel, match=r"m9, …$"):
        choose(many, None)


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("/models/qwen3-8b.gguf", "qwen3-8b.gguf"),
        ("./models/qwen/", "qwen"),
        ("~/m.gguf", "m.gguf"),
        (r"C:\models\m.gguf", "m.gguf"),
        ("org/model", "org/model"),
        ("models/gemini-pro", "models/gemini-pro"),
        ("llama3:latest", "llama3:latest"),
        ("/", "/"),
    ],
)
def test_of_a_path_the_last_part_is_shown(id: str, shown: str) -> None:
    assert shown_name(id) == shown
