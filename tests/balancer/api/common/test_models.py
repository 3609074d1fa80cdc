"""The models that are served, in the words of two APIs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anthropic.types
import openai.types
import pytest
from aiohttp.test_utils import TestClient
from pydantic import TypeAdapter

from arriero.balancer.api.common.models import (
    AnthropicModel,
    AnthropicModels,
    OpenAIModel,
    OpenAIModels,
    anthropic_list,
    anthropic_model,
    openai_list,
    openai_model,
    sole_model,
)
from arriero.balancer.fleet.view import ModelView
from arriero.shared.errors import InvalidRequest, ModelNotFound
from arriero.shared.messages import Issue
from arriero.shared.reports.model_info import Task
from tests.balancer.api.anthropic.strict import checked_error
from tests.balancer.api.declared import check
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.fleet.builders import model_info

ANTHROPIC = {"anthropic-version": "2023-06-01"}


async def get(client: TestClient, path: str, **headers: str) -> tuple[int, Any]:
    async with client.get(path, headers=headers) as response:
        return response.status, await response.json()


async def test_openais(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.model_names, runtime.unloaded = ["b/c", "a"], {"a"}
    _, listed = await get(client, "/v1/models")
    assert [model["id"] for model in listed["data"]] == ["a", "b/c"]
    assert [model["status"] for model in listed["data"]] == ["unloaded", "loaded"]
    _, one = await get(client, "/v1/models/b/c")
    assert one == listed["data"][1]
    model = TypeAdapter(openai.types.Model).validate_json(json.dumps(one), strict=True)
    assert set(model.model_extra or ()) == {
        *("tasks", "status", "progress", "issues", "context_length", "max_model_len", "meta")
    }
    size = one["context_length"]
    assert size > 0
    assert (one["max_model_len"], one["meta"]["n_ctx"]) == (size, size)


async def test_anthropics(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.model_names = ["b/c", "a"]
    _, listed = await get(client, "/v1/models", **ANTHROPIC)
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b/c", False)
    _, one = await get(client, "/v1/models/b/c", **ANTHROPIC)
    assert one == listed["data"][1]
    model = TypeAdapter(anthropic.types.ModelInfo).validate_json(json.dumps(one), strict=True)
    assert not model.model_extra


@pytest.mark.parametrize("headers", [{}, ANTHROPIC])
async def test_none(runtime: FakeFleetRuntime, client: TestClient, headers: dict[str, str]) -> None:
    runtime.model_names = []
    assert (await get(client, "/v1/models", **headers))[1]["data"] == []
    status, body = await get(client, "/v1/models/nobody", **headers)
    assert status == 404
    if headers:
        assert checked_error(body).error.type == "not_found_error"
    else:
        assert body["error"]["code"] == "model_not_found"


def test_a_model_that_is_not_loaded_says_how_far_it_is_and_why() -> None:
    issue = Issue(code="too_large", message="it needs 90 GiB", hint="use a smaller one")
    view = FakeFleetRuntime().models()[0]
    told = openai_model(replace(view, status="failed", progress=0.25, issues=(issue,)), 1)
    assert (told["status"], told["progress"], told["issues"]) == ("failed", 0.25, (issue,))


async def test_they_are_also_where_llama_server_has_them(client: TestClient) -> None:
    assert await get(client, "/models") == await get(client, "/v1/models")
    assert await get(client, "/models/demo") == await get(client, "/v1/models/demo")


# ---- of calls that name none


def served(name: str, *tasks: Task) -> ModelView:
    return ModelView(info=replace(model_info(), name=name, tasks=tasks), status="loaded")


CHAT = served("chat", "generate", "embed")


@pytest.mark.parametrize(
    "models", [[CHAT], [served("vectors", "embed"), CHAT], [served("vectors", "embed")]]
)
def test_the_only_model_and_the_only_one_that_generates(models: list[ModelView]) -> None:
    assert sole_model(models) is models[-1]


def test_one_of_several_models_has_to_be_named() -> None:
    models = [served(f"m{number}", "generate") for number in range(9)]
    with pytest.raises(InvalidRequest, match=r"several models: m0, m1, m2, m3, m4$"):
        sole_model(models)


def test_no_model() -> None:
    with pytest.raises(ModelNotFound):
        sole_model([])


# ---- as declared


MODEL = ModelView(info=model_info(), status="loading")


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_model, OpenAIModel), (anthropic_model, AnthropicModel)],
)
def test_one(make: Callable[[ModelView, int], object], form: type) -> None:
    check(form, make(MODEL, 5))


@pytest.mark.parametrize(
    ("make", "form"),
    [(openai_list, OpenAIModels), (anthropic_list, AnthropicModels)],
)
@pytest.mark.parametrize("models", [[], [MODEL, MODEL]])
def test_all(
    make: Callable[[list[ModelView], int], object], form: type, models: list[ModelView]
) -> None:
    check(form, make(models, 5))
