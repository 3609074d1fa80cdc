"""The Responses API over HTTP: `/v1/responses`, and stored responses."""

from dataclasses import dataclass
from functools import partial

from aiohttp import web
from pydantic_core import to_json

from .....shared.errors import Conflict, InvalidRequest, NotFound, RequestError
from .....shared.inference import GenerateRequest, tier_of
from ....fleet.caller import Caller
from ....fleet.runtime.fleet_runtime import FleetRuntime
from ....fleet.runtime.retained_requests import RetainedRequests
from ....fleet.runtime.stream import LISTED_LOG_PROB
from ...common.answering import json_response
from ...common.counting import count_tokens
from ...common.idempotency import RestoreRetained, retained_opener
from ...common.request_checks import check_copies
from ...conversations import Conversations
from ...endpoint import Endpoint, Generation, KnownAnswer, Opened, handler, obeyed, respond
from ...guard import Needs
from ...route import OPENAI, Route
from ...transport.bodies import Bodies
from ...transport.callers import caller_of
from ...transport.fault_reports import RefusalReport
from ...transport.http import request_id_key
from ...transport.streaming import EVENT_STREAM, REQUEST_ID, send_stream
from ..conversations.book import ConversationBook
from .answer import AddTurn, ResponseAnswer
from .answer_types import CountedInput, DeletedResponse
from .background import BackgroundResponses, answer_of, chunks, note_of, parse_after
from .events import response_id
from .items import Item
from .listing import input_list, parse_page
from .requests import ResponsesRequest, parse_response
from .stored import Stored


def routes(
    runtime: FleetRuntime,
    conversations: Conversations,
    bodies: Bodies,
    retained: RetainedRequests,
    restore_retained: RestoreRetained,
) -> list[Route]:
    """Return the routes under `/v1/responses`."""
    restore = partial(answer_of, store=Conversations(conversations.memory))
    background = BackgroundResponses(retained, restore_retained, restore)
    responses = Responses(runtime, conversations, bodies, background)
    handlers = _ResponsesHandlers(runtime, conversations, background, responses)
    one = "/v1/responses/{id}"
    count = handler(runtime, Endpoint(parse_response, responses.count))
    return [
        Route("POST", "/v1/responses", Needs.CALL, handlers.create, OPENAI),
        Route("POST", "/v1/responses/input_tokens", Needs.CALL, count, OPENAI),
        Route("POST", "/v1/responses/compact", Needs.ANY, _refuse_compaction, OPENAI),
        Route("GET", one, Needs.CALL, handlers.retrieve, OPENAI),
        Route("DELETE", one, Needs.CALL, handlers.delete, OPENAI),
        Route("GET", f"{one}/input_items", Needs.CALL, handlers.input_items, OPENAI),
        Route("POST", f"{one}/cancel", Needs.CALL, handlers.cancel, OPENAI),
    ]


@dataclass(frozen=True, slots=True)
class _ResponsesCall:
    """A parsed body, the response that it continues, and the resulting request."""

    requested: ResponsesRequest
    previous: Stored | None
    neutral: GenerateRequest
    add_turn: AddTurn | None = None


class Responses:
    """Handlers of new responses and of counts; `background` has the responses in the background."""

    def __init__(
        self,
        runtime: FleetRuntime,
        conversations: Conversations,
        bodies: Bodies,
        background: BackgroundResponses | None = None,
    ) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._bodies = bodies
        self._background = background
        self._book = ConversationBook(conversations)

    async def answer(self, requested: ResponsesRequest, caller: Caller) -> Generation:
        """Return the response for a client that waits for it."""
        asked = await self.asked(requested, caller)
        return Generation(
            requests=[asked.neutral],
            is_streamed=requested.stream,
            rendering=partial(self._rendering, asked, caller.owner),
            names=requested.field_names,
            kept_log_prob=LISTED_LOG_PROB,
        )

    def _rendering(
        self, asked: _ResponsesCall, owner: str | None, opened: Opened
    ) -> ResponseAnswer:
        return ResponseAnswer(
            opened.id,
            self._conversations,
            asked.requested,
            asked.previous,
            served=opened.model,
            service_tier=tier_of(opened.priority),
            created_at=int(opened.created_at),
            owner=owner,
            add_turn=asked.add_turn,
        )

    async def count(self, requested: ResponsesRequest, caller: Caller) -> KnownAnswer:
        """Return the number of input tokens."""
        asked = await self.asked(requested, caller)
        num_tokens = await count_tokens(
            self._runtime, asked.neutral, requested.field_names, caller=caller
        )
        body: CountedInput = {"object": "response.input_tokens", "input_tokens": num_tokens}
        return KnownAnswer(body)

    async def asked(self, requested: ResponsesRequest, caller: Caller) -> _ResponsesCall:
        """Return the request with the whole conversation.

        Raises the errors of `ResponsesRequest.request`.
        """
        add_turn: AddTurn | None = None
        if (id := requested.conversation_id) is None:
            previous = await self._previous(requested.previous_response_id, caller)
        else:
            known = await self._book.find(id, caller.owner, field="conversation")
            previous = known.as_stored()
            add_turn = partial(self._book.append, id, known, owner=caller.owner)
        history = () if previous is None else previous.history
        num_bytes = requested.num_bytes + (0 if previous is None else previous.history_bytes)
        if requested.references:
            requested.refer(await self._referred(requested, history, caller))
            num_bytes += len(to_json(requested.input))
        check_copies(num_bytes, field="previous_response_id")
        neutral = await self._bodies.off_loop(num_bytes, lambda: requested.request(history))
        return _ResponsesCall(requested, previous, neutral, add_turn)

    async def _referred(
        self, requested: ResponsesRequest, history: tuple[Item, ...], caller: Caller
    ) -> dict[str, Item]:
        """Return the items to which an input refers, except items in `history`. Raises `NotFound`.

        A stored response has all earlier items, so the last reference is looked up first. Mostly
        the other items are in the same response.
        """
        known: dict[str, Item] = {}
        before = {item.id for item in history}
        for reference in reversed(requested.references):
            if reference.id in known or reference.id in before:
                continue
            if reference.response is not None:
                id = response_id(reference.response)
                stored = await self._stored(id, caller, field="input")
                known |= {item.id: item for item in stored.history if item.id} if stored else {}
            if reference.id not in known:
                raise NotFound(
                    f"`input`: no item with the id {reference.id[:100]!r} is stored, or it "
                    "was deleted; send the item itself",
                    field="input",
                )
        return {id: item for id, item in known.items() if id not in before}

    async def _previous(self, id: str | None, caller: Caller) -> Stored | None:
        """Return the response to continue. Raises `NotFound`, and `Conflict` while it runs."""
        if id is None:
            return None
        previous = await self._stored(id, caller, field="previous_response_id")
        if previous is None:
            raise _unknown(id, "previous_response_id")
        return previous

    async def _stored(self, id: str, caller: Caller, *, field: str) -> Stored | None:
        """Return a response that has ended, if it is stored. Raises `Conflict` while it runs."""
        running = None if self._background is None else await self._background.find(id, caller)
        if running is not None and running.response()["status"] in ("queued", "in_progress"):
            raise Conflict(f"the response {id[:100]!r} has not ended yet", field=field)
        return await self._conversations.find(id, Stored, owner=caller.owner)


class _ResponsesHandlers:
    """The handlers of the routes."""

    def __init__(
        self,
        runtime: FleetRuntime,
        conversations: Conversations,
        background: BackgroundResponses,
        responses: Responses,
    ) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._background = background
        self._responses = responses

    async def create(self, request: web.Request) -> web.StreamResponse:
        requested = await obeyed(request, parse_response)
        if requested.background:
            return await self._run(request, requested)
        with RefusalReport(request):
            generation = await self._responses.answer(requested, caller_of(request))
        return await respond(request, self._runtime, generation)

    async def _run(self, request: web.Request, requested: ResponsesRequest) -> web.StreamResponse:
        """Run a response in the background, and return the HTTP response."""
        caller = caller_of(request)
        with RefusalReport(request):
            asked = await self._responses.asked(requested, caller)
        served = requested.model or self._runtime.views.model_name_for("generate", caller)
        tier = tier_of(self._runtime.views.priority(asked.neutral, caller))
        note = note_of(requested, asked.previous, served, tier)
        requested.raw = b""
        open_retained = await retained_opener(request, note)
        try:
            retained = open_retained(asked.neutral)
        except RequestError as error:
            raise requested.field_names.renamed(error) from error
        request[request_id_key] = retained.id
        answer = ResponseAnswer(
            retained.id,
            # With its events it is in the store of retained requests.
            Conversations(self._conversations.memory),
            requested,
            asked.previous,
            served=served,
            service_tier=tier,
            created_at=int(retained.record.created_at),
            owner=retained.record.key.owner,
        )
        response = self._background.add(retained, answer)
        headers = {REQUEST_ID: retained.id}
        if not requested.stream:
            return json_response(response.response(), headers=headers)
        return await send_stream(
            request, chunks(response, -1), content_type=EVENT_STREAM, headers=headers
        )

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        is_streamed = request.query.get("stream") == "true"
        with RefusalReport(request):
            after = parse_after(request)
            running = await self._background.find(id, caller_of(request))
            if running is None:
                stored = await self._stored(request)
                if is_streamed:
                    raise InvalidRequest(
                        "`stream`: only a response in the background can be streamed "
                        "again, until it is deleted",
                        field="stream",
                    )
                return web.Response(body=stored.response, content_type="application/json")
        if not is_streamed:
            return json_response(running.response())
        return await send_stream(request, chunks(running, after), content_type=EVENT_STREAM)

    async def delete(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        with RefusalReport(request):
            caller = caller_of(request)
            was_running = await self._background.forget(id, caller)
            was_stored = await self._conversations.forget(id, Stored, owner=caller.owner)
            if not was_stored and not was_running:
                raise _unknown(id)
        body: DeletedResponse = {"id": id, "object": "response", "deleted": True}
        return json_response(body)

    async def input_items(self, request: web.Request) -> web.Response:
        with RefusalReport(request):
            stored = await self._stored(request)
            page = parse_page(request.query)
        return json_response(input_list(stored.input, page))

    async def cancel(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        with RefusalReport(request):
            response = await self._background.cancel(id, caller_of(request))
            if response is None:
                await self._stored(request)
                raise InvalidRequest(
                    "only a response in the background can be cancelled; to end another "
                    "response, close its connection"
                )
        return json_response(response)

    async def _stored(self, request: web.Request) -> Stored:
        """Return the caller's response that `request` names. Raises `NotFound`."""
        id = request.match_info["id"]
        stored = await self._conversations.find(id, Stored, owner=caller_of(request).owner)
        if stored is None:
            raise _unknown(id)
        return stored


async def _refuse_compaction(request: web.Request) -> web.StreamResponse:
    with RefusalReport(request):
        raise NotFound(
            "/v1/responses/compact is not supported; let a model summarise the "
            "conversation, and begin a new response with the summary"
        )


def _unknown(id: str, field: str | None = None) -> NotFound:
    return NotFound(f"there is no response with the id {id[:100]!r}", field=field)
