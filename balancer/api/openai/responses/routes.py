"""The Responses API over HTTP: `/v1/responses`, and stored responses."""

import time

from aiohttp import web

from .....shared.errors import InvalidRequest, NotFound, RequestError
from .....shared.inference import Done, Event, GenerateRequest
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.stream import Stream
from ...common.answering import json_response
from ...common.counting import count_tokens
from ...common.event_stream import ServerSentEvents, read_to_end
from ...common.readable import check_copies
from ...conversation_store import ConversationStore
from ...fields.reading import obeyed
from ...transport.bodies import BODIES
from ...transport.callers import caller_of
from ...transport.door_reports import refusals_reported
from ...transport.http import request_id_key
from ...transport.streaming import EVENT_STREAM, REQUEST_ID, send_events
from ...transport.waiting import comments_after
from .answer_types import CountedInput, DeletedResponse, Response
from .events import ResponseEvents
from .items import Json, with_ids
from .listing import input_list, parse_page
from .requests import Wanted, parse_response
from .stored import Stored, stored


def routes(runtime: FleetRuntime, store: ConversationStore) -> list[web.AbstractRouteDef]:
    """The routes under `/v1/responses`."""
    handlers = _Handlers(runtime, store)
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

    def __init__(self, runtime: FleetRuntime, store: ConversationStore) -> None:
        self._runtime = runtime
        self._store = store

    async def create(self, request: web.Request) -> web.StreamResponse:
        wanted = await obeyed(request, parse_response)
        with refusals_reported(request):
            previous = _previous(self._store, wanted.previous_response_id, caller_of(request).owner)
            neutral = await _neutral(request, wanted, previous)
        with self._opened(request, neutral, wanted) as stream:
            request[request_id_key] = stream.id
            caller = caller_of(request)
            answer = _Answer(self._runtime, self._store, wanted, previous, stream, caller)
            headers = {REQUEST_ID: stream.id}
            if wanted.stream:
                render = ServerSentEvents(answer, wanted.field_names)
                return await send_events(
                    request, stream, render, content_type=EVENT_STREAM, headers=headers
                )
            await read_to_end(stream, answer, wanted.field_names)
            return json_response(answer.response, headers=headers)

    def _opened(self, request: web.Request, neutral: GenerateRequest, wanted: Wanted) -> Stream:
        try:
            return self._runtime.open(
                neutral, caller=caller_of(request), tell_waiting=comments_after(wanted.stream)
            )
        except RequestError as error:
            raise wanted.field_names.told(error) from error

    async def count(self, request: web.Request) -> web.Response:
        wanted = await obeyed(request, parse_response)
        with refusals_reported(request):
            previous = _previous(self._store, wanted.previous_response_id, caller_of(request).owner)
            neutral = await _neutral(request, wanted, previous)
        num_tokens = await count_tokens(
            self._runtime, neutral, wanted.field_names, caller=caller_of(request)
        )
        body: CountedInput = {"object": "response.input_tokens", "input_tokens": num_tokens}
        return json_response(body)

    async def retrieve(self, request: web.Request) -> web.Response:
        with refusals_reported(request):
            if request.query.get("stream") == "true":
                raise InvalidRequest(
                    "`stream`: a stored response cannot be streamed again", field="stream"
                )
            kept = _kept(self._store, request)
        return web.Response(body=kept.response, content_type="application/json")

    async def delete(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        with refusals_reported(request):
            owner = caller_of(request).owner
            if not self._store.forget(id, Stored, time.monotonic(), owner=owner):
                raise _unknown(id)
        body: DeletedResponse = {"id": id, "object": "response", "deleted": True}
        return json_response(body)

    async def input_items(self, request: web.Request) -> web.Response:
        with refusals_reported(request):
            kept = _kept(self._store, request)
            page = parse_page(request.query)
        return json_response(input_list(kept.input, page))

    async def cancel(self, request: web.Request) -> web.Response:
        with refusals_reported(request):
            _kept(self._store, request)
            raise InvalidRequest(
                "the response has ended; to cancel one that runs, close its connection"
            )


class _Answer(ResponseEvents):
    """One response while it is generated; it is stored if it ends without an error."""

    def __init__(
        self,
        runtime: FleetRuntime,
        store: ConversationStore,
        wanted: Wanted,
        previous: Stored | None,
        stream: Stream,
        caller: Caller,
    ) -> None:
        self._store = store
        self._owner = caller.owner
        self._wanted = wanted
        self._previous = previous
        served = wanted.model or runtime.model_name_for("generate", caller)
        super().__init__(
            stream.id,
            created_at=int(time.time()),
            echo=wanted.echo(served),
            namespaces=wanted.namespaces,
        )

    def take(self, event: Event) -> list[Json]:
        """The API events for `event`."""
        told = super().take(event)
        if isinstance(event, Done) and self._wanted.store:
            # Stored before the end is sent: the client may continue the response at once.
            self._keep(self.response)
        return told

    def _keep(self, response: Response) -> None:
        given = with_ids(self._wanted.input, self._id)
        entry = stored(response, given, self._previous)
        self._store.keep(response["id"], entry, time.monotonic(), owner=self._owner)


async def _neutral(
    request: web.Request, wanted: Wanted, previous: Stored | None
) -> GenerateRequest:
    """The request with all of the conversation. Raises as `Wanted.request` does."""
    history = () if previous is None else previous.history
    num_bytes = wanted.num_bytes + (0 if previous is None else previous.history_bytes)
    check_copies(num_bytes, field="previous_response_id")
    return await request.app[BODIES].off_loop(num_bytes, lambda: wanted.request(history))


def _previous(store: ConversationStore, id: str | None, owner: str | None) -> Stored | None:
    if id is None:
        return None
    previous = store.find(id, Stored, time.monotonic(), owner=owner)
    if previous is None:
        raise _unknown(id, "previous_response_id")
    return previous


def _kept(store: ConversationStore, request: web.Request) -> Stored:
    id = request.match_info["id"]
    kept = store.find(id, Stored, time.monotonic(), owner=caller_of(request).owner)
    if kept is None:
        raise _unknown(id)
    return kept


def _unknown(id: str, field: str | None = None) -> NotFound:
    return NotFound(f"there is no response with the id {id[:100]!r}", field=field)
