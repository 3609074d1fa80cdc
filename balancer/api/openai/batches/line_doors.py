"""Answers the lines of batches: each as its path answers a request, within the process.

A line's request has the class `batch`, so it gives way to everybody's who waits. What it makes is
in the batch's output and nowhere else: responses are not stored.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from pydantic_core import to_json

from .....shared.errors import NotFound, RequestError, status_of
from .....shared.inference import GenerateRequest, UsedTier, tier_of
from ....fleet.caller import Caller
from ....fleet.queries.query import QueryRequest
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....jobs.core.lines import Answered, Line
from ...common.answering import written
from ...common.event_stream import read_to_end
from ...common.merge import Merged, open_together
from ...conversations import Conversations
from ...transport.bodies import Bodies
from ..completions.answers import Head, whole_answer
from ..completions.requests import Wanted, parse_chat, parse_completion
from ..completions.shapes import Chat, Completion, Shape
from ..errors import openai_error
from ..queries.embeddings import parse_embeddings
from ..queries.rerank import parse_rerank
from ..responses.answer import Answer
from ..responses.requests import parse_response
from ..responses.stored import Stored

BATCH_PRIORITY = -1
"""The class `batch`."""

Door = Callable[[bytes, Caller], Awaitable[Answered]]


class LineDoors:
    """`answer` is what a runner of batches needs."""

    def __init__(self, runtime: FleetRuntime, conversations: Conversations, bodies: Bodies) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._bodies = bodies
        self._doors: dict[str, Door] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embeddings,
            "/v1/rerank": self._rerank,
            "/v1/responses": self._response,
        }

    async def answer(self, line: Line, caller: Caller) -> Answered:
        """An error is an answer, too; ours alone are raised."""
        try:
            return await self._doors[line.url](line.body, caller)
        except RequestError as error:
            return Answered(status=status_of(error), body=to_json(openai_error(error)), error=error)

    async def _chat(self, body: bytes, caller: Caller) -> Answered:
        wanted = await self._bodies.off_loop(len(body), lambda: parse_chat(body))
        return await self._generated(wanted, Chat(has_log_probs=wanted.has_log_probs), caller)

    async def _completion(self, body: bytes, caller: Caller) -> Answered:
        wanted = await self._bodies.off_loop(len(body), lambda: parse_completion(body))
        shape = Completion(
            has_log_probs=wanted.has_log_probs, echoes=wanted.echoes, generates=wanted.generates
        )
        return await self._generated(wanted, shape, caller)

    async def _generated(self, wanted: Wanted, shape: Shape, caller: Caller) -> Answered:
        try:
            open_one = partial(self._runtime.open, caller=caller)
            requests = [_of_batch(each) for each in wanted.requests]
            streams = open_together(open_one, requests)
            async with Merged(streams) as merged:
                answers = await merged.collect(all_or_nothing=True)
        except RequestError as error:
            raise wanted.field_names.told(error) from error
        head = Head(
            id=f"{shape.id_prefix}{streams[0].id}",
            created=int(time.time()),
            model=wanted.model or self._runtime.model_name_for("generate", caller),
            service_tier=self._tier(requests[0], caller),
        )
        whole = whole_answer(shape, head, answers, wanted.num_choices)
        return Answered(status=200, body=to_json(whole), request_id=streams[0].id)

    async def _response(self, body: bytes, caller: Caller) -> Answered:
        wanted = await self._bodies.off_loop(len(body), lambda: parse_response(body))
        wanted.store = False
        previous = await self._previous(wanted.previous_response_id, caller)
        neutral = _of_batch(wanted.request(() if previous is None else previous.history))
        try:
            stream = self._runtime.open(neutral, caller=caller)
        except RequestError as error:
            raise wanted.field_names.told(error) from error
        with stream:
            answer = Answer(
                stream.id,
                self._conversations,
                wanted,
                previous,
                served=wanted.model or self._runtime.model_name_for("generate", caller),
                service_tier=self._tier(neutral, caller),
                created_at=int(time.time()),
                owner=caller.owner,
            )
            await read_to_end(stream, answer, wanted.field_names)
        return Answered(status=200, body=to_json(answer.response), request_id=stream.id)

    def _tier(self, request: GenerateRequest, caller: Caller) -> UsedTier:
        return tier_of(self._runtime.priority(request, caller))

    async def _previous(self, id: str | None, caller: Caller) -> Stored | None:
        if id is None:
            return None
        previous = await self._conversations.find(id, Stored, owner=caller.owner)
        if previous is None:
            raise NotFound(
                f"there is no response with the id {id[:100]!r}", field="previous_response_id"
            )
        return previous

    async def _embeddings(self, body: bytes, caller: Caller) -> Answered:
        call = await self._bodies.off_loop(len(body), lambda: parse_embeddings(body))
        model = self._model(call.query_request, caller)
        with self._runtime.ask(call.query_request, caller=caller) as handle:
            results = await handle.results()
        whole = await written(call.answer(model, results))
        return Answered(status=200, body=whole, request_id=handle.id)

    async def _rerank(self, body: bytes, caller: Caller) -> Answered:
        call = await self._bodies.off_loop(len(body), lambda: parse_rerank(body))
        model = self._model(call.query_request, caller)
        with self._runtime.ask(call.query_request, caller=caller) as handle:
            results = await handle.results()
        whole = await written(call.answer(handle.id, model, results))
        return Answered(status=200, body=whole, request_id=handle.id)

    def _model(self, query_request: QueryRequest, caller: Caller) -> str:
        return query_request.model or self._runtime.model_name_for(query_request.task, caller)


ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/responses",
)
"""Paths that batches may ask."""


def _of_batch(request: GenerateRequest) -> GenerateRequest:
    return replace(request, priority=min(request.priority or 0, BATCH_PRIORITY), stream=False)
