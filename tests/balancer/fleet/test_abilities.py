from dataclasses import replace

import pytest

from arriero.balancer.fleet.abilities import Abilities, model_not_found
from arriero.balancer.fleet.decisions import LinkId
from arriero.shared.errors import InvalidRequest, ModelNotFound
from arriero.shared.messages import Task
from tests.balancer.fleet.builders import model_info

LLAMA = replace(model_info("llama"), tasks=("generate", "embed"))
BERT = replace(model_info("bert"), tasks=("embed",))
A, B = LinkId(1), LinkId(2)


@pytest.fixture
def abilities() -> Abilities:
    abilities = Abilities()
    abilities.changed(A, LLAMA)
    abilities.changed(B, BERT)
    return abilities


def test_with_nobody_here_nothing_is_in_vain() -> None:
    assert Abilities().refusal("rank", None) is None
    assert Abilities().refusal("embed", "bert") is None
    empty = Abilities()
    empty.changed(A, None)
    assert empty.refusal("rank", "bert") is None


def test_what_a_model_cannot_do(abilities: Abilities) -> None:
    assert abilities.misplaced("generate", "bert") == InvalidRequest(
        "the model `bert` cannot generate text", field="model"
    )
    assert abilities.misplaced("generate", "llama") is None
    assert abilities.misplaced("generate", "nobody") is None
    assert abilities.refusal("embed", "bert") is None
    assert abilities.refusal(None, "bert") is None


def test_what_no_model_can_do(abilities: Abilities) -> None:
    assert abilities.refusal("embed", None) is None
    assert abilities.refusal("rank", None) == InvalidRequest(
        "no agent here has a model that can rank documents", field="model"
    )


@pytest.mark.parametrize("task", ["embed", None])
def test_a_model_that_is_not_here(abilities: Abilities, task: Task | None) -> None:
    error = abilities.refusal(task, "nobody")
    assert isinstance(error, ModelNotFound)
    assert error.message == "no agent serves the model `nobody`; served: bert, llama"


def test_agents_that_change_or_leave_count_no_more(abilities: Abilities) -> None:
    abilities.changed(B, LLAMA)
    assert isinstance(abilities.refusal("embed", "bert"), ModelNotFound)
    abilities.left(A)
    abilities.left(A)
    assert abilities.refusal("generate", "llama") is None
    abilities.left(B)
    assert abilities.refusal("rank", "llama") is None


def test_a_long_list_of_models_is_cut() -> None:
    message = model_not_found("x", [f"m{number:02}" for number in range(12)]).message
    assert message.endswith("m08, m09, …")
