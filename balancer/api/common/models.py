"""`/v1/models` in OpenAI's format, or in Anthropic's for clients that name its API version."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from aiohttp import web

from ....shared.errors import ModelNotFound
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..transport.callers import caller_of
from .answer_types import AnthropicModel, AnthropicModels, OpenAIModel, OpenAIModels
from .answering import json_response


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/models`. A model's creation time is the balancer's start."""
    started = int(time.time())

    async def models(request: web.Request) -> web.Response:
        listed = anthropic_list if is_anthropics(request) else openai_list
        return json_response(listed(runtime.models(caller_of(request)), started))

    async def one_model(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        shape = anthropic_model if is_anthropics(request) else openai_model
        if (model := runtime.model(name, caller_of(request))) is not None:
            return json_response(shape(model, started))
        raise ModelNotFound(f"no agent serves the model {name[:200]!r}", field="model")

    return [web.get("/v1/models", models), web.get("/v1/models/{name:.+}", one_model)]


def is_anthropics(request: web.Request) -> bool:
    """Whether the request comes from an Anthropic client."""
    return "anthropic-version" in request.headers


def openai_model(model: ModelView, created: int) -> OpenAIModel:
    """`created` in Unix seconds. `tasks`, `status`, `progress` and `issues` are fields of our own.

    The context size is given under several names, since clients expect those of various servers.

    A model that is `loading` or `unloaded` is listed as well: requests for it wait in the queue.
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
    """All of them."""
    return {"object": "list", "data": [openai_model(model, created) for model in models]}


def anthropic_model(model: ModelView, created: int) -> AnthropicModel:
    """`created` in Unix seconds."""
    return {
        "id": model.info.name,
        "type": "model",
        "display_name": model.info.name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": model.info.context_size,
    }


def anthropic_list(models: Iterable[ModelView], created: int) -> AnthropicModels:
    """All of them, on one page."""
    listed = [anthropic_model(model, created) for model in models]
    return {
        "data": listed,
        "has_more": False,
        "first_id": listed[0]["id"] if listed else None,
        "last_id": listed[-1]["id"] if listed else None,
    }
