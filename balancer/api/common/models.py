"""`/v1/models`: in OpenAI's words, or in Anthropic's for clients that name a version of its API."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from ....shared.errors import ModelNotFound
from ....shared.messages import ModelInfo
from ...fleet.runtime.fleet_runtime import FleetRuntime

Json = dict[str, object]


def routes(runtime: FleetRuntime) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/models`. A model counts as made when the balancer started."""
    started = int(time.time())

    async def models(request: web.Request) -> web.Response:
        shape, listed = _shapes(request)
        return web.json_response(listed([shape(model, started) for model in runtime.view().models]))

    async def one_model(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        shape, _ = _shapes(request)
        for model in runtime.view().models:
            if model.name == name:
                return web.json_response(shape(model, started))
        raise ModelNotFound(f"no agent serves the model {name[:200]!r}", field="model")

    return [web.get("/v1/models", models), web.get("/v1/models/{name:.+}", one_model)]


def is_anthropics(request: web.Request) -> bool:
    """Whether it comes from a client of Anthropic's."""
    return "anthropic-version" in request.headers


def _shapes(
    request: web.Request,
) -> tuple[Callable[[ModelInfo, int], Json], Callable[[list[Json]], Json]]:
    if is_anthropics(request):
        return anthropic_model, anthropic_list
    return openai_model, openai_list


def openai_model(model: ModelInfo, created: int) -> Json:
    """`created` in Unix seconds."""
    return {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "arriero",
        "tasks": model.tasks,
    }


def openai_list(models: list[Json]) -> Json:
    """All of them."""
    return {"object": "list", "data": models}


def anthropic_model(model: ModelInfo, created: int) -> Json:
    """`created` in Unix seconds."""
    return {
        "id": model.name,
        "type": "model",
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": model.context_size,
    }


def anthropic_list(models: list[Json]) -> Json:
    """All of them, on one page."""
    return {
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"] if models else None,
        "last_id": models[-1]["id"] if models else None,
    }
