"""Names, lists and descriptions of models, as Ollama's clients read them."""

from dataclasses import replace

import pytest
from ollama import ListResponse, ProcessResponse, ShowResponse

from arriero.balancer.api.ollama.models import (
    OllamaModel,
    capabilities,
    described,
    details_of,
    digest_of,
    listed,
    parse_show,
    running,
    served_name,
)
from arriero.balancer.fleet.view import ModelView
from arriero.shared.errors import InvalidRequest
from arriero.shared.models.assignments import HOST, MemoryPart
from arriero.shared.queries import TokenizerDescription
from arriero.shared.reports.model_info import ModelInfo
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import FakeFleetRuntime

INFO = ModelInfo(
    name="m",
    architecture="qwen3",
    parameters=7_615_616_512,
    size_bytes=4_000,
    context_size=4096,
    tasks=("generate", "embed"),
    fingerprint="f",
)
MODEL = ModelView(info=INFO, status="loaded")
WHEN = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("m", "m"),
        ("m:latest", "m"),
        ("tagged:latest", "tagged:latest"),
        ("m:8b", "m:8b"),
        ("none", "none"),
        ("none:latest", "none"),
        (":latest", ":latest"),
    ],
)
def test_latest_may_be_added(asked: str, served: str) -> None:
    assert served_name(asked, {"m", "tagged:latest"}.__contains__) == served


def test_a_list() -> None:
    (model,) = listed([MODEL], WHEN)
    assert (model["name"], model["model"], model["size"]) == ("m", "m", 4_000)
    assert model["modified_at"] == WHEN
    read = ListResponse.model_validate({"models": [model]})
    assert read.models[0].details is not None
    assert read.models[0].details.family == "qwen3"


def test_only_loaded_models_run() -> None:
    waiting = replace(MODEL, status="waiting")
    (model,) = running([MODEL, waiting])
    assert (model["name"], model["context_length"]) == ("m", 4096)
    assert model["size_vram"] == 0
    ProcessResponse.model_validate({"models": [model]})


def test_what_a_model_takes_of_gpus_is_not_on_the_cpu() -> None:
    memory = (
        *(MemoryPart(device=device, bytes=3) for device in ("CUDA0", "CUDA1")),
        MemoryPart(device=HOST, bytes=5),
    )
    (model,) = running([replace(MODEL, info=replace(INFO, memory=memory, quantization="Q4_K_M"))])
    assert model["size_vram"] == 6
    assert model["details"]["quantization_level"] == "Q4_K_M"


def test_digests_differ_by_name_and_fingerprint() -> None:
    others = [INFO, replace(INFO, name="n"), replace(INFO, fingerprint=None)]
    digests = {digest_of(each) for each in others}
    assert len(digests) == 3
    assert {len(digest) for digest in digests} == {64}


@pytest.mark.parametrize(
    ("count", "told"),
    [(7_615_616_512, "7.6B"), (22_713_216, "22.71M"), (5_500, "5.50K"), (12, "12"), (0, "")],
)
def test_sizes_are_short(count: int, told: str) -> None:
    assert details_of(replace(INFO, parameters=count))["parameter_size"] == told


def test_a_description() -> None:
    tokenizer = TokenizerDescription(chat_template="{% if tools %}<think>{% endif %}")
    told = described(INFO, tokenizer, WHEN)
    read = ShowResponse.model_validate(told)
    assert read.template == tokenizer.chat_template
    assert read.capabilities == ["completion", "tools", "thinking"]
    assert read.modelinfo == {
        "general.architecture": "qwen3",
        "general.parameter_count": 7_615_616_512,
        "qwen3.context_length": 4096,
    }
    assert described(INFO, None, WHEN)["template"] == ""


def test_what_a_model_can_do() -> None:
    assert capabilities(INFO, "") == ["completion"]
    assert capabilities(replace(INFO, tasks=("embed", "rank")), "tools") == ["embedding"]
    assert capabilities(replace(INFO, tasks=()), "") == []
    assert capabilities(replace(INFO, tasks=("generate", "vision")), "") == ["completion", "vision"]


def test_who_is_to_be_shown() -> None:
    assert parse_show(b'{"model": "m", "verbose": true}') == "m"
    assert parse_show(b'{"name": "m"}') == "m"
    with pytest.raises(InvalidRequest, match="`model` is missing"):
        parse_show(b"{}")


def test_models_are_as_declared() -> None:
    (model,) = listed(FakeFleetRuntime().models(), "2026-01-01T00:00:00Z")
    check(OllamaModel, model)
