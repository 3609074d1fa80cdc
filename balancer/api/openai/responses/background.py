"""Responses in the background: they run to their end even if no client is connected.

A client may poll such a response, read its events from any number on, and cancel it. Each reading
renders the retained events again, so each reader sees the same events with the same numbers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from aiohttp import web
from pydantic import TypeAdapter
from pydantic_core import to_json

from .....shared.errors import InvalidRequest, RequestTimeout
from .....shared.inference import RequestId, UsedTier
from .....shared.log import context
from .....shared.strict import LAZY
from ....fleet.caller import Caller
from ....fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from ....fleet.runtime.stream import merged
from ...common.event_stream import frames
from ...common.idempotency import RestoreRetained
from ...conversations import Conversations
from .answer import ResponseAnswer
from .answer_types import Response
from .events import RESPONSE_PREFIX, ResponseEvents
from .requests import ResponsesRequest, parse_response
from .stored import Stored

logger = logging.getLogger(__name__)

CANCELLING = 15.0
"""Seconds in which a response has to end after it was cancelled.

If its balancer is gone, the lease of that balancer has to expire first; see
`balancer.durable.request_service`.
"""


class BackgroundResponse:
    """One response in the background; `answer` renders its events from the first on.

    When the response has ended, its request is dropped, except the parts that the response
    repeats.
    """

    def __init__(self, retained: RetainedRequest, answer: ResponseEvents) -> None:
        self._retained = retained
        self._answer = answer
        self._answer.begin()
        self._num_taken = 0
        if retained.end is not None:
            self._settle()
        else:
            retained.on_end = self._settle_soon

    def response(self) -> Response:
        """Return the response so far."""
        new = self._retained.events[self._num_taken :]
        self._num_taken += len(new)
        for event in merged(new):
            self._answer.take(event)
        return self._answer.response

    async def events(self, after: int) -> AsyncIterator[bytes]:
        """Yield server-sent events whose numbers are larger than `after`, until the end."""
        answer = self._answer.anew()
        with self._retained.attach() as stream:
            yield frames([each for each in answer.begin() if each["sequence_number"] > after])
            async for event in stream:
                rendered = answer.take(event)
                yield frames([each for each in rendered if each["sequence_number"] > after])

    def _settle_soon(self) -> None:
        # Not at once: other requests' events are being delivered.
        asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        response = self.response()
        self._answer = self._answer.anew()
        self._answer.response = response
        self._retained.shrink(len(to_json(response)))

    async def ended(self) -> None:
        """Wait for the end of the response. Raises `RequestTimeout`."""
        try:
            async with asyncio.timeout(CANCELLING):
                with self._retained.attach() as stream:
                    async for _ in stream:
                        pass
        except TimeoutError as error:
            raise RequestTimeout(
                "the response was cancelled, but has not ended yet; try again in a moment"
            ) from error


class BackgroundResponses:
    """The retained responses of all callers."""

    def __init__(
        self,
        retained: RetainedRequests,
        restore_retained: RestoreRetained,
        restore: Callable[[RetainedRequest], ResponseEvents],
    ) -> None:
        """Prepare. `restore` makes the renderer for a response of another run of the balancer.

        `restore` raises `ValueError` for an unreadable note.
        """
        self._retained = retained
        self._restore_retained = restore_retained
        self._restore = restore

    def add(self, retained: RetainedRequest, answer: ResponseEvents) -> BackgroundResponse:
        """Add the response of a running request. If it was added earlier, return the earlier
        one.
        """
        if retained.answer is None:
            retained.answer = BackgroundResponse(retained, answer)
        added: BackgroundResponse = retained.answer
        return added

    async def find(self, id: str, caller: Caller) -> BackgroundResponse | None:
        """Return a response of the caller that is still retained, in memory or in the store."""
        retained = await self._retained_of(id, caller)
        if retained is None:
            return None
        known: BackgroundResponse | None = retained.answer
        if known is not None or not retained.note:
            return known
        try:
            answer = await asyncio.to_thread(self._restore, retained)
        except ValueError:
            logger.exception(
                "a stored response cannot be read: it is damaged, or another version of "
                "Arriero wrote it",
                extra=context(id=retained.id),
            )
            return None
        retained.note = b""
        return self.add(retained, answer)

    async def _retained_of(self, id: str, caller: Caller) -> RetainedRequest | None:
        own_id = _request_id(id)
        retained = self._retained.find_by_id(own_id, caller=caller)
        is_current = retained is not None and (retained.end is not None or not retained.is_remote)
        if is_current or not id.startswith(RESPONSE_PREFIX):
            return retained
        await self._restore_retained(caller, id=own_id)
        return self._retained.find_by_id(own_id, caller=caller)

    async def cancel(self, id: str, caller: Caller) -> Response | None:
        """Cancel a response and wait for its end. A response that has ended stays unchanged."""
        response = await self.find(id, caller)
        retained = self._retained.find_by_id(_request_id(id), caller=caller)
        if retained is None or response is None:
            return None
        if retained.end is None:
            self._retained.cancel(retained)
            await response.ended()
        return response.response()

    async def forget(self, id: str, caller: Caller) -> bool:
        """Delete a response, and cancel it if it runs. Returns whether it was retained."""
        is_retained = await self.find(id, caller) is not None
        if is_retained:
            self._retained.forget_id(_request_id(id), caller=caller)
        return is_retained


async def chunks(response: BackgroundResponse, after: int) -> AsyncIterator[bytes]:
    """Yield the events in the form of a stream, after a comment that begins the stream at once."""
    yield b": response in the background\n\n"
    async for chunk in response.events(after):
        if chunk:
            yield chunk


def parse_after(request: web.Request) -> int:
    """Return the number after which events are requested; -1 for all. Raises `InvalidRequest`."""
    given = request.query.get("starting_after", "-1")
    if given != "-1" and not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InvalidRequest(
            "`starting_after`: give the `sequence_number` of the last event that you received",
            field="starting_after",
        )
    return int(given)


def _request_id(id: str) -> RequestId:
    return RequestId(id.removeprefix(RESPONSE_PREFIX))


# ---- what another run of the balancer needs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    __pydantic_config__ = LAZY

    body: str
    served: str
    service_tier: UsedTier = "default"
    previous: Stored | None = None


_note = TypeAdapter(_Note)


def note_of(
    requested: ResponsesRequest, previous: Stored | None, served: str, service_tier: UsedTier
) -> bytes:
    """Return the note that is retained with the request. `served` is the model that answers."""
    note = _Note(
        body=requested.raw.decode(), served=served, service_tier=service_tier, previous=previous
    )
    return _note.dump_json(note)


def answer_of(retained: RetainedRequest, store: Conversations) -> ResponseAnswer:
    """Return the renderer of the response. Raises `ValueError` for an unreadable note."""
    note = _note.validate_json(retained.note)
    requested = parse_response(note.body.encode())
    requested.raw = b""
    return ResponseAnswer(
        retained.id,
        store,
        requested,
        note.previous,
        served=note.served,
        service_tier=note.service_tier,
        created_at=int(retained.record.created_at),
        owner=retained.record.key.owner,
    )
