"""The OpenAI API's `/v1/completions` and `/v1/chat/completions`."""

from functools import partial

from .....shared.inference import tier_of
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ...endpoint import Endpoint, Generation, Opened, handler
from ...guard import Needs
from ...route import OPENAI, Route
from .answers import AnswerShape, Chat, ChoicesAnswer, ChunkHead, Completion
from .requests import CompletionsRequest, parse_chat, parse_completion


async def _answer_chat(requested: CompletionsRequest, _caller: Caller) -> Generation:
    shape = Chat(has_log_probs=requested.has_log_probs, has_functions=requested.has_functions)
    return _generation(requested, shape)


async def _answer_completion(requested: CompletionsRequest, _caller: Caller) -> Generation:
    shape = Completion(
        has_log_probs=requested.has_log_probs,
        echoes=requested.echoes,
        generates=requested.generates,
    )
    return _generation(requested, shape)


def _generation(requested: CompletionsRequest, shape: AnswerShape) -> Generation:
    return Generation(
        requests=requested.requests,
        is_streamed=requested.stream,
        rendering=partial(_rendering, requested, shape),
        names=requested.field_names,
        tells_progress=requested.tells_progress,
    )


def _rendering(requested: CompletionsRequest, shape: AnswerShape, opened: Opened) -> ChoicesAnswer:
    head = ChunkHead(
        id=f"{shape.id_prefix}{opened.id}",
        created=int(opened.created_at),
        model=opened.model,
        service_tier=tier_of(opened.priority),
    )
    return ChoicesAnswer(
        shape,
        head,
        num_choices=requested.num_choices,
        include_usage=requested.include_usage,
        has_running_usage=requested.has_running_usage,
        tells_progress=requested.tells_progress,
    )


CHAT = Endpoint(parse_chat, _answer_chat)
COMPLETION = Endpoint(parse_completion, _answer_completion)


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return both routes, also without `/v1`, as in llama-server."""
    chat, completion = handler(runtime, CHAT), handler(runtime, COMPLETION)
    return [
        Route("POST", "/v1/chat/completions", Needs.CALL, chat, OPENAI),
        Route("POST", "/v1/completions", Needs.CALL, completion, OPENAI),
        Route("POST", "/chat/completions", Needs.CALL, chat, OPENAI),
        Route("POST", "/completions", Needs.CALL, completion, OPENAI),
    ]
