"""The Responses API over HTTP: `/v1/responses`, and stored responses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import web

from .....shared.errors import Conflict, InvalidRequest, NotFound, RequestError
from .....shared.inference import GenerateRequest, UsedTier, tier_of
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.kept_request import KeptRequest
from ....fleet.runtime.kept_requests import KeptRequests
from ...common.answering import json_response
from ...common.counting import count_tokens
from ...common.event_stream import ServerSentEvents, read_to_end
from ...common.opening import Recall, keeper, opener, waits_of
from ...common.readable import check_copies
from ...conversations import Conversations
from ...fields.reading import obeyed
from ...transport.bodies import BODIES
from ...transport.callers import caller_of
from ...transport.door_reports import refusals_reported
from ...transport.http import request_id_key
from ...transport.streaming import EVENT_STREAM, REQUEST_ID, send_events, send_stream
from .answer import Answer
from .answer_types import CountedInput, DeletedResponse
from .background import BackgroundResponses, chunks, parse_after
from .background_note import answer_to, answers_of, note_of
from .listing import input_list, parse_page
from .requests import Wanted, parse_response
from .stored import Stored


def routes(
    runtime: FleetRuntime, conversations: Conversations, kept: KeptRequests, recall: Recall
) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/responses`."""
    restore = partial(answers_of, store=conversations.memory)
    handlers = _Handlers(runtime, conversations, BackgroundResponses(kept, recall, restore))
    return [
        web.post("/v1/responses", handlers.create),
        web.post("/v1/responses/input_tokens", handlers.count),
        web.get("/v1/responses/{id}", handlers.retrieve),
        web.delete("/v1/responses/{id}", handlers.delete),
        web.get("/v1/responses/{id}/input_items", handlers.input_items),
        web.post("/v1/responses/{id}/cancel", handlers.cancel),
    ]


class _Handlers:
    """The handlers of the routes."""

    def __init__(
        self, runtime: FleetRuntime, conversations: Conversations, background: BackgroundResponses
    ) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._background = background

    async def create(self, request: web.Request) -> web.StreamResponse:
        wanted = await obeyed(request, parse_response)
        with refusals_reported(request):
            previous = await self._previous(request, wanted.previous_response_id)
            neutral = await _neutral(request, wanted, previous)
        run = self._run if wanted.background else self._answer
        return await run(request, wanted, previous, neutral)

    async def _answer(
        self,
        request: web.Request,
        wanted: Wanted,
        previous: Stored | None,
        neutral: GenerateRequest,
    ) -> web.StreamResponse:
        open_one = await opener(
            request, self._runtime, tell_waiting=waits_of(request, wanted.stream)
        )
        with _told(wanted):
            stream = open_one(neutral)
        with stream:
            request[request_id_key] = stream.id
            caller = caller_of(request)
            answer = answer_to(
                stream.id,
                self._conversations,
                wanted,
                previous,
                served=stream.model or self._served(wanted, caller),
                service_tier=self._tier(neutral, caller),
                created_at=stream.created_at,
                owner=caller.owner,
            )
            headers = {REQUEST_ID: stream.id}
            if wanted.stream:
                render = ServerSentEvents(answer, wanted.field_names)
                return await send_events(
                    request, stream, render, content_type=EVENT_STREAM, headers=headers
                )
            await read_to_end(stream, answer, wanted.field_names)
            return json_response(answer.response, headers=headers)

    async def _run(
        self,
        request: web.Request,
        wanted: Wanted,
        previous: Stored | None,
        neutral: GenerateRequest,
    ) -> web.StreamResponse:
        """In the background."""
        caller = caller_of(request)
        served, tier = self._served(wanted, caller), self._tier(neutral, caller)
        keep = await keeper(request, note_of(wanted, previous, served, tier))
        with _told(wanted):
            kept = keep(neutral)
        request[request_id_key] = kept.id
        response = self._background.add(kept, self._rendering(wanted, previous, kept, served, tier))
        headers = {REQUEST_ID: kept.id}
        if not wanted.stream:
            return json_response(response.response(), headers=headers)
        return await send_stream(
            request, chunks(response, -1), content_type=EVENT_STREAM, headers=headers
        )

    def _rendering(
        self,
        wanted: Wanted,
        previous: Stored | None,
        kept: KeptRequest,
        served: str,
        service_tier: UsedTier,
    ) -> Callable[[], Answer]:
        return partial(
            answer_to,
            kept.id,
            self._conversations.memory,  # with its events it is in the store of kept requests
            wanted,
            previous,
            served=served,
            service_tier=service_tier,
            created_at=kept.record.created_at,
            owner=kept.record.key.owner,
        )

    def _served(self, wanted: Wanted, caller: Caller) -> str:
        return wanted.model or self._runtime.model_name_for("generate", caller)

    def _tier(self, request: GenerateRequest, caller: Caller) -> UsedTier:
        return tier_of(self._runtime.priority(request, caller))

    async def count(self, request: web.Request) -> web.Response:
        wanted = await obeyed(request, parse_response)
        with refusals_reported(request):
            previous = await self._previous(request, wanted.previous_response_id)
            neutral = await _neutral(request, wanted, previous)
        num_tokens = await count_tokens(
            self._runtime, neutral, wanted.field_names, caller=caller_of(request)
        )
        body: CountedInput = {"object": "response.input_tokens", "input_tokens": num_tokens}
        return json_response(body)

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        is_streamed = request.query.get("stream") == "true"
        with refusals_reported(request):
            after = parse_after(request)
            running = await self._background.find(id, caller_of(request))
            if running is None:
                kept = await self._kept(request)
                if is_streamed:
                    raise InvalidRequest(
                        "`stream`: only a response in the background can be streamed again, and "
                        "only for some time",
                        field="stream",
                    )
                return web.Response(body=kept.response, content_type="application/json")
        if not is_streamed:
            return json_response(running.response())
        return await send_stream(request, chunks(running, after), content_type=EVENT_STREAM)

    async def delete(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        with refusals_reported(request):
            caller = caller_of(request)
            was_running = await self._background.forget(id, caller)
            was_stored = await self._conversations.forget(id, Stored, owner=caller.owner)
            if not was_stored and not was_running:
                raise _unknown(id)
        body: DeletedResponse = {"id": id, "object": "response", "deleted": True}
        return json_response(body)

    async def input_items(self, request: web.Request) -> web.Response:
        with refusals_reported(request):
            kept = await self._kept(request)
            page = parse_page(request.query)
        return json_response(input_list(kept.input, page))

    async def cancel(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        with refusals_reported(request):
            response = await self._background.cancel(id, caller_of(request))
            if response is None:
                await self._kept(request)
                raise InvalidRequest(
                    "only a response in the background can be cancelled; others end with their "
                    "connection"
                )
        return json_response(response)

    async def _previous(self, request: web.Request, id: str | None) -> Stored | None:
        """What a response continues. Raises `NotFound`, and `Conflict` while that one runs."""
        if id is None:
            return None
        caller = caller_of(request)
        running = await self._background.find(id, caller)
        if running is not None and running.response()["status"] in ("queued", "in_progress"):
            raise Conflict(
                f"the response {id[:100]!r} has not ended yet", field="previous_response_id"
            )
        previous = await self._conversations.find(id, Stored, owner=caller.owner)
        if previous is None:
            raise _unknown(id, "previous_response_id")
        return previous

    async def _kept(self, request: web.Request) -> Stored:
        """The caller's response that `request` names. Raises `NotFound`."""
        id = request.match_info["id"]
        kept = await self._conversations.find(id, Stored, owner=caller_of(request).owner)
        if kept is None:
            raise _unknown(id)
        return kept


@contextmanager
def _told(wanted: Wanted) -> Iterator[None]:
    """Errors name fields as `wanted` does."""
    try:
        yield
    except RequestError as error:
        raise wanted.field_names.told(error) from error


async def _neutral(
    request: web.Request, wanted: Wanted, previous: Stored | None
) -> GenerateRequest:
    """The request with all of the conversation. Raises as `Wanted.request` does."""
    history = () if previous is None else previous.history
    num_bytes = wanted.num_bytes + (0 if previous is None else previous.history_bytes)
    check_copies(num_bytes, field="previous_response_id")
    return await request.app[BODIES].off_loop(num_bytes, lambda: wanted.request(history))


def _unknown(id: str, field: str | None = None) -> NotFound:
    return NotFound(f"there is no response with the id {id[:100]!r}", field=field)
