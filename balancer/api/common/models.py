"""`/v1/models` in OpenAI's format, or in Anthropic's for clients that name its API version."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.errors import InvalidRequest, ModelNotFound
from ....shared.inference import Count
from ....shared.messages import Issue
from ....shared.reports.model_info import Task
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelStatus, ModelView
from ..guard import Needs
from ..route import OPENAI, Route
from ..transport.callers import caller_of
from .answering import json_response

_MOST_NAMED = 5
"""Maximum models that an error lists."""


class ModelMeta(TypedDict):
    """A model's figures as llama-server names them: tokens of a context, parameters, bytes."""

    n_ctx: int
    n_params: int
    size: int


class OpenAIModel(TypedDict):
    """A model that requests may name; `created` is in seconds since 1970.

    If a model is `loading`, or its last agent left a short while ago, its requests wait in the
    queue. `progress` is the loaded share, from 0 to 1, if known. `issues` say why the model is not
    loaded, or not on as many agents as desired.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: tuple[Task, ...]
    status: ModelStatus
    progress: float | None
    issues: tuple[Issue, ...]
    context_length: int
    max_model_len: int
    meta: ModelMeta


class OpenAIModels(TypedDict):
    """All known models."""

    object: Literal["list"]
    data: list[OpenAIModel]


class AnthropicModel(TypedDict):
    """A model that requests may name; `created_at` is an RFC 3339 time."""

    id: str
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: Count
    max_tokens: Count
    capabilities: None


class AnthropicModels(TypedDict):
    """All known models, on one page."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


def routes(runtime: FleetRuntime) -> list[Route]:
    """The routes under `/v1/models`. A model's creation time is the balancer's start."""
    started = int(time.time())

    async def models(request: web.Request) -> web.Response:
        listed = anthropic_list if is_anthropics(request) else openai_list
        return json_response(listed(runtime.views.models(caller_of(request)), started))

    async def one_model(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        shape = anthropic_model if is_anthropics(request) else openai_model
        return json_response(shape(model_named(runtime, name, caller_of(request)), started))

    return [
        Route("GET", "/v1/models", Needs.LIST, models, OPENAI),
        Route("GET", "/v1/models/{name:.+}", Needs.LIST, one_model, OPENAI),
        Route("GET", "/models", Needs.LIST, models, OPENAI),
        Route("GET", "/models/{name:.+}", Needs.LIST, one_model, OPENAI),
    ]


def model_named(runtime: FleetRuntime, name: str | None, caller: Caller) -> ModelView:
    """Return the model with this name; without a name, the result of `sole_model`.

    Raises `RequestError`.
    """
    if not name:
        return sole_model(runtime.views.models(caller))
    if (model := runtime.views.model(name, caller)) is None:
        raise unknown_model(runtime, name, caller)
    return model


def unknown_model(runtime: FleetRuntime, name: str, caller: Caller) -> ModelNotFound:
    """Return the error for an unknown model. It lists the models that the caller may use."""
    models = runtime.views.models(caller)
    known = ", ".join(each.info.name for each in models[:_MOST_NAMED])
    more = ", …" if len(models) > _MOST_NAMED else ""
    return ModelNotFound(
        f"no agent serves the model `{name[:200]}`; known models: {known or 'none'}{more}",
        field="model",
    )


def sole_model(models: Sequence[ModelView]) -> ModelView:
    """Return the model for a call without a model name.

    It is the only model, or the only model that generates. The tokens of one model mean nothing to
    another, so the choice must be clear. Raises `RequestError` if it is not.
    """
    found = [each for each in models if "generate" in each.info.tasks] or list(models)
    if not found:
        raise ModelNotFound("no agent serves a model", field="model")
    if len(found) > 1:
        names = ", ".join(each.info.name for each in found[:_MOST_NAMED])
        raise InvalidRequest(
            f"`model`: is missing; the fleet serves several models: {names}", field="model"
        )
    return found[0]


def is_anthropics(request: web.Request) -> bool:
    """Return whether an Anthropic client sent the request."""
    return "anthropic-version" in request.headers


def openai_model(model: ModelView, created: int) -> OpenAIModel:
    """Return the entry of a model. `tasks`, `status`, `progress` and `issues` are extensions.

    The context size has several names, because clients expect the names of various servers. A
    model that is `loading` or `unloaded` is listed as well, because requests for the model wait in
    the queue. `created` is in seconds since 1970.
    """
    return {
        "id": model.info.name,
        "object": "model",
        "created": created,
        "owned_by": "arriero",
        "tasks": model.info.tasks,
        "status": model.status,
        "progress": model.progress,
        "issues": model.issues,
        "context_length": model.info.context_size,
        "max_model_len": model.info.context_size,
        "meta": {
            "n_ctx": model.info.context_size,
            "n_params": model.info.parameters,
            "size": model.info.size_bytes,
        },
    }


def openai_list(models: Iterable[ModelView], created: int) -> OpenAIModels:
    """Return the list of all models in OpenAI's format."""
    return {"object": "list", "data": [openai_model(model, created) for model in models]}


def anthropic_model(model: ModelView, created: int) -> AnthropicModel:
    """Return the entry of a model; `created` is in seconds since 1970."""
    return {
        "id": model.info.name,
        "type": "model",
        "display_name": model.info.name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": model.info.context_size,
        "max_tokens": model.info.context_size,
        "capabilities": None,
    }


def anthropic_list(models: Iterable[ModelView], created: int) -> AnthropicModels:
    """Return the list of all models, on one page."""
    listed = [anthropic_model(model, created) for model in models]
    return {
        "data": listed,
        "has_more": False,
        "first_id": listed[0]["id"] if listed else None,
        "last_id": listed[-1]["id"] if listed else None,
    }
