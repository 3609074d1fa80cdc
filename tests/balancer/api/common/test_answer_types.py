"""Models are listed as the types say."""

from collections.abc import Callable

import pytest

from arriero.balancer.api.common import answer_types
from arriero.balancer.api.common.models import (
    anthropic_list,
    anthropic_model,
    openai_list,
    openai_model,
)
from arriero.balancer.fleet.view import ModelView
from tests.balancer.api.declared import check
from tests.balancer.fleet.builders import model_info

MODEL = ModelView(info=model_info(), status="loading")


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_model, answer_types.OpenAIModel), (anthropic_model, answer_types.AnthropicModel)],
)
def test_one(make: Callable[[ModelView, int], object], form: type) -> None:
    check(form, make(MODEL, 5))


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_list, answer_types.OpenAIModels), (anthropic_list, answer_types.AnthropicModels)],
)
@pytest.mark.parametrize("models", [[], [MODEL, MODEL]])
def test_all(
    make: Callable[[list[ModelView], int], object], form: type, models: list[ModelView]
) -> None:
    check(form, make(models, 5))
