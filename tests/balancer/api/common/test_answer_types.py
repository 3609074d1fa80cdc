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
from arriero.shared.messages import ModelInfo
from tests.balancer.api.declared import check

MODEL = ModelInfo(name="m", architecture="llama", size_bytes=1, parameters=1, context_size=64)


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_model, answer_types.OpenAIModel), (anthropic_model, answer_types.AnthropicModel)],
)
def test_one(make: Callable[[ModelInfo, int], object], form: type) -> None:
    check(form, make(MODEL, 5))


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_list, answer_types.OpenAIModels), (anthropic_list, answer_types.AnthropicModels)],
)
@pytest.mark.parametrize("models", [[], [MODEL, MODEL]])
def test_all(
    make: Callable[[list[ModelInfo], int], object], form: type, models: list[ModelInfo]
) -> None:
    check(form, make(models, 5))
