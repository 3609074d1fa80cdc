"""Answers the lines of batches: each line as its path answers a request, within the process.

The request of a line has the priority class `batch`, so all other waiting requests go first. Its
answer is written only to the batch's output: responses are not stored.
"""

from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from .....shared.errors import InvalidRequest, RequestError, status_of
from .....shared.inference import GenerateRequest, RequestId
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....jobs.lines import Answered, Line
from ...conversations import Conversations
from ...endpoint import Endpoint, Generation, collected
from ...fields.field_table import FieldNotes
from ...transport.bodies import Bodies
from ..completions.routes import CHAT, COMPLETION
from ..errors import openai_error
from ..queries.routes import embeddings_endpoint, rerank_endpoint
from ..responses.requests import ResponsesRequest, parse_response
from ..responses.routes import Responses

BATCH_PRIORITY = -1
"""The priority of the class `batch`."""


class LineHandlers:
    """The handlers of lines. The runner of batches calls `handle_line` for each line."""

    def __init__(self, runtime: FleetRuntime, conversations: Conversations, bodies: Bodies) -> None:
        self._runtime = runtime
        self._bodies = bodies
        responses = Responses(runtime, conversations, bodies)
        self._endpoints: dict[str, Endpoint[Any]] = {
            "/v1/chat/completions": CHAT,
            "/v1/completions": COMPLETION,
            "/v1/embeddings": embeddings_endpoint(runtime),
            "/v1/rerank": rerank_endpoint(runtime),
            "/v1/responses": Endpoint(_parse_unstored, responses.answer),
        }

    async def handle_line(self, line: Line, caller: Caller) -> Answered:
        """Return the answer to a line.

        An error of the request is an answer, too; only internal errors are raised.
        """
        try:
            id, body = await self._answer(self._endpoints[line.url], line.body, caller)
        except RequestError as error:
            error.forget_frames()
            return Answered(status=status_of(error), body=to_json(openai_error(error)), error=error)
        return Answered(status=200, body=body, request_id=id)

    async def _answer(
        self, endpoint: Endpoint[Any], body: bytes, caller: Caller
    ) -> tuple[RequestId | None, bytes]:
        requested = await self._bodies.off_loop(len(body), lambda: endpoint.parse(body, None))
        answer = await endpoint.answer(requested, caller)
        if isinstance(answer, Generation):
            answer = replace(answer, requests=[_of_batch(each) for each in answer.requests])
        return await collected(self._runtime, caller, answer)


def _parse_unstored(body: bytes, notes: FieldNotes | None) -> ResponsesRequest:
    requested = parse_response(body, notes)
    if requested.conversation_id is not None:
        raise InvalidRequest(
            "`conversation` cannot be used in a batch, because the lines of a batch run in "
            "any order",
            field="conversation",
        )
    requested.store = False
    return requested


def _of_batch(request: GenerateRequest) -> GenerateRequest:
    return replace(request, priority=min(request.priority or 0, BATCH_PRIORITY), stream=False)
