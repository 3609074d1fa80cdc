"""The OpenAI API's `/v1/completions` and `/v1/chat/completions`."""

from functools import partial

from .....shared.inference import tier_of
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ...access.permissions import Needs
from ...endpoint import Endpoint, Generation, Opened, handler
from ...route import OPENAI, Route
from .answers import Chat, ChoicesAnswer, Completion, Head, Shape
from .requests import Wanted, parse_chat, parse_completion


async def _answer_chat(wanted: Wanted, _caller: Caller) -> Generation:
    return _generation(wanted, Chat(has_log_probs=wanted.has_log_probs))


async def _answer_completion(wanted: Wanted, _caller: Caller) -> Generation:
    shape = Completion(
        has_log_probs=wanted.has_log_probs, echoes=wanted.echoes, generates=wanted.generates
    )
    return _generation(wanted, shape)


def _generation(wanted: Wanted, shape: Shape) -> Generation:
    return Generation(
        requests=wanted.requests,
        is_streamed=wanted.stream,
        rendering=partial(_rendering, wanted, shape),
        names=wanted.field_names,
    )


def _rendering(wanted: Wanted, shape: Shape, opened: Opened) -> ChoicesAnswer:
    head = Head(
        id=f"{shape.id_prefix}{opened.id}",
        created=int(opened.created_at),
        model=opened.model,
        service_tier=tier_of(opened.priority),
    )
    return ChoicesAnswer(
        shape,
        head,
        num_choices=wanted.num_choices,
        include_usage=wanted.include_usage,
        has_running_usage=wanted.has_running_usage,
    )


CHAT = Endpoint(parse_chat, _answer_chat)
COMPLETION = Endpoint(parse_completion, _answer_completion)


def routes(runtime: FleetRuntime) -> list[Route]:
    """Both routes."""
    chat, completion = handler(runtime, CHAT), handler(runtime, COMPLETION)
    return [
        Route("POST", "/v1/chat/completions", Needs.CALL, chat, OPENAI),
        Route("POST", "/v1/completions", Needs.CALL, completion, OPENAI),
    ]
