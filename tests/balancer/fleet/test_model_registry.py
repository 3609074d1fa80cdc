from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.model_registry import ModelRegistry, model_not_found
from arriero.shared.errors import InvalidRequest, ModelNotFound
from arriero.shared.messages import Task
from tests.balancer.fleet.builders import model_info

LLAMA = replace(model_info("llama"), tasks=("generate", "embed"))
BERT = replace(model_info("bert"), tasks=("embed",))
A, B = LinkId(1), LinkId(2)


@pytest.fixture
def model_registry() -> ModelRegistry:
    model_registry = ModelRegistry()
    model_registry.changed(A, LLAMA)
    model_registry.changed(B, BERT)
    return model_registry


def test_with_nobody_here_nothing_is_in_vain() -> None:
    assert ModelRegistry().refusal("rank", None) is None
    assert ModelRegistry().refusal("embed", "bert") is None
    empty = ModelRegistry()
    empty.changed(A, None)
    assert empty.refusal("rank", "bert") is None


def test_what_a_model_cannot_do(model_registry: ModelRegistry) -> None:
    assert model_registry.misplaced("generate", "bert") == InvalidRequest(
        "the model `bert` cannot generate text", field="model"
    )
    assert model_registry.misplaced("generate", "llama") is None
    assert model_registry.misplaced("generate", "nobody") is None
    assert model_registry.refusal("embed", "bert") is None
    assert model_registry.refusal(None, "bert") is None


def test_what_no_model_can_do(model_registry: ModelRegistry) -> None:
    assert model_registry.refusal("embed", None) is None
    assert model_registry.refusal("rank", None) == InvalidRequest(
        "no agent here has a model that can rank documents", field="model"
    )


@pytest.mark.parametrize("task", ["embed", None])
def test_a_model_that_is_not_here(model_registry: ModelRegistry, task: Task | None) -> None:
    error = model_registry.refusal(task, "nobody")
    assert isinstance(error, ModelNotFound)
    assert error.message == "no agent serves the model `nobody`; served: bert, llama"


def test_agents_that_change_or_leave_count_no_more(model_registry: ModelRegistry) -> None:
    model_registry.changed(B, LLAMA)
    assert isinstance(model_registry.refusal("embed", "bert"), ModelNotFound)
    model_registry.left(A)
    model_registry.left(A)
    assert model_registry.refusal("generate", "llama") is None
    model_registry.left(B)
    assert model_registry.refusal("rank", "llama") is None


def test_a_long_list_of_models_is_cut() -> None:
    message = model_not_found("x", [f"m{number:02}" for number in range(12)]).message
    assert message.endswith("m08, m09, …")
