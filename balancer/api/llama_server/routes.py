"""llama-server's `/completion`, `/infill` and `/props` over HTTP."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from aiohttp import web
from typing_extensions import TypedDict

from ....shared.inference import Count
from ....shared.queries import DescribeTokenizer, Result, TokenizerDescription
from ...fleet.caller import Caller
from ...fleet.queries.query import QueryRequest
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import ModelView
from ..common.models import model_named
from ..common.parts import only
from ..endpoint import Endpoint, Generation, Opened, Query, handler, respond
from ..guard import Needs
from ..route import LLAMA_SERVER, Route
from ..transport.callers import caller_of
from .answers import CompletionAnswer
from .requests import LlamaServerRequest, parse_completion, parse_infill

PATHS = ("/completion", "/infill", "/props")


class DefaultSettings(TypedDict):
    """The context size of a slot, and the defaults for requests."""

    n_ctx: Count
    params: Mapping[str, Any]


class Modalities(TypedDict):
    """Inputs that the model takes besides text."""

    vision: bool
    audio: bool


class Props(TypedDict):
    """Properties of a model; a property that the model lacks is empty."""

    default_generation_settings: DefaultSettings
    total_slots: Count
    model_path: str
    model_alias: str
    modalities: Modalities
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the routes, at the root as in llama-server."""
    completion = handler(runtime, Endpoint(parse_completion, _answer))
    infill = handler(runtime, Endpoint(parse_infill, _answer))

    async def props(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        model = model_named(runtime, request.query.get("model"), caller)
        query = QueryRequest(kind="text", parts=(DescribeTokenizer(),), model=model.info.name)
        shape = partial(_props, model, runtime.views.totals().slots_total)
        return await respond(request, runtime, Query(query, shape))

    return [
        Route("POST", "/completion", Needs.CALL, completion, LLAMA_SERVER),
        Route("POST", "/infill", Needs.CALL, infill, LLAMA_SERVER),
        Route("GET", "/props", Needs.CALL, props, LLAMA_SERVER, acts=True),
    ]


async def _answer(requested: LlamaServerRequest, _caller: Caller) -> Generation:
    return Generation(
        requests=[requested.request],
        is_streamed=requested.request.stream,
        rendering=partial(_rendering, requested),
        names=requested.names,
        tells_progress=requested.tells_progress,
    )


def _rendering(requested: LlamaServerRequest, opened: Opened) -> CompletionAnswer:
    return CompletionAnswer(
        requested.request,
        opened.model,
        has_tokens=requested.has_tokens,
        tells_progress=requested.tells_progress,
    )


def _props(model: ModelView, num_slots: int, _id: str, results: Sequence[Result]) -> Props:
    description = only(results, TokenizerDescription)
    return {
        "default_generation_settings": {"n_ctx": model.info.context_size, "params": {}},
        "total_slots": num_slots,
        "model_path": model.info.name,
        "model_alias": model.info.name,
        "modalities": {
            "vision": "vision" in model.info.tasks,
            "audio": "audio" in model.info.tasks,
        },
        "chat_template": description.chat_template or "",
        "bos_token": description.bos_text or "",
        "eos_token": description.eos_text or "",
        "build_info": f"arriero {version('arriero')}",
    }
