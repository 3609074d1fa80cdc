"""The OpenAI API's calls that take no slot: `/v1/embeddings`, and `/v1/rerank` beside it."""

from aiohttp import web

from ...fleet.asked import Question
from ...fleet.switchboard import Switchboard
from ..answering import answer
from ..http import read_json_body
from .embeddings import parse_embeddings
from .rerank import parse_rerank


def routes(switchboard: Switchboard) -> list[web.AbstractRouteDef]:
    """The routes."""

    async def embeddings(request: web.Request) -> web.Response:
        call = parse_embeddings(await read_json_body(request))
        model = _model(switchboard, call.question)
        return await answer(
            request, switchboard, call.question, lambda _id, results: call.answer(model, results)
        )

    async def rerank(request: web.Request) -> web.Response:
        call = parse_rerank(await read_json_body(request))
        model = _model(switchboard, call.question)
        return await answer(
            request,
            switchboard,
            call.question,
            lambda id, results: call.answer(id, model, results),
        )

    return [web.post("/v1/embeddings", embeddings), web.post("/v1/rerank", rerank)]


def _model(switchboard: Switchboard, question: Question) -> str:
    """The name that the answer bears."""
    if question.model is not None:
        return question.model
    return switchboard.view().served_name_for(question.task)
