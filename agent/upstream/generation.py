"""Generation by another server: one streamed HTTP request per request.

All methods are called on the event loop's thread. Each request is a task of its own, and a failure
ends only its request, with one typed error. Ending a request closes its connection, so that the
server stops generating.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...shared.errors import AgentLost, InternalError, RequestError, ShuttingDown, to_wire
from ...shared.inference import MAX_COUNT, GenerateRequest, Notice, RequestId
from ...shared.log import context
from ...shared.messages import Item, Noticed, Refused, Start
from ..generation.port import Listener
from ..sequence_id import SequenceId
from .client import Client
from .meter import Meter
from .protocol.answer import UpstreamAnswer
from .protocol.bodies import Json, Server, body_of, path_of
from .protocol.continuing import Rest, notice_of
from .protocol.event_lines import EventLines
from .protocol.failures import (
    UpstreamFault,
    UpstreamLost,
    UpstreamRefusal,
    error_of,
    loss_of,
    message_of,
    unwilling,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Active:
    """A request that has not ended. `is_rest`: another agent began its answer."""

    id: RequestId
    listener: Listener
    answer: UpstreamAnswer
    is_rest: bool = False
    task: asyncio.Task[None] | None = None
    is_taken: bool = False
    """True once the server began to answer the request."""


class UpstreamGeneration:
    """`port.Generation` over a server. Tasks run in `group`; `clock` returns seconds.

    `server` returns the server's properties; `None` while it is unreachable. `on_suspicion`: a
    request could not reach the server. `on_refusal`: the server asks for a pause, or refused a
    request for reasons of its own while it serves no other request. `on_served`: the server
    accepted a request. `on_work`: there is something to measure.
    """

    def __init__(
        self,
        client: Client,
        group: asyncio.TaskGroup,
        server: Callable[[], Server | None],
        *,
        on_suspicion: Callable[[], None],
        on_refusal: Callable[[UpstreamRefusal], None],
        on_served: Callable[[], None],
        on_work: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._group = group
        self._server = server
        self._on_suspicion = on_suspicion
        self._on_refusal = on_refusal
        self._on_served = on_served
        self._on_work = on_work
        self._clock = clock
        self._active: dict[SequenceId, _Active] = {}
        self.meter = Meter()

    def start(self, id: SequenceId, start: Start, listener: Listener) -> None:
        """Answer the request as the sequence `id`; the listener receives all its items."""
        request, continuation = start.request, start.continuation
        rest = None if continuation is None else Rest(request, continuation)
        answer = UpstreamAnswer(
            start.id,
            one_call=request.parallel_tool_calls is False,
            rest=rest,
            most_tokens=request.max_tokens or MAX_COUNT,
        )
        active = self._active[id] = _Active(start.id, listener, answer, is_rest=rest is not None)
        self.meter.started(id, self._clock())
        self._on_work()
        if continuation is not None and not continuation.is_by_text:
            error = AgentLost("an upstream server cannot continue from token ids")
            self._end(id, Refused(id=start.id, error=to_wire(error)))
        elif rest is not None and rest.is_empty:
            self._end(id, answer.full())
        else:
            active.task = self._group.create_task(
                self._run(id, active, request if rest is None else rest.request)
            )

    def cancel(self, id: SequenceId) -> None:
        """End the sequence early. A complete answer ends normally."""
        if (active := self._active.get(id)) is not None:
            rates = self.meter.rates(id, active.answer.usage)
            self._end(id, active.answer.cancelled(rates))

    def fail(self, id: SequenceId, error: RequestError) -> None:
        """End the sequence with `error`. A complete answer ends normally, but at once."""
        if (active := self._active.get(id)) is not None:
            self._end(id, Refused(id=active.id, error=to_wire(error)))

    def discard(self, id: SequenceId) -> None:
        """End the sequence without any further item; it is still released."""
        if id in self._active:
            self._end(id)

    # ---- one request

    async def _run(self, id: SequenceId, active: _Active, request: GenerateRequest) -> None:
        try:
            await self._answer(id, active, request)
        except Exception as error:  # the boundary of a request: it is logged and answered
            if id in self._active:
                failed = self._error_of(error, active)
                self._end(id, Refused(id=active.id, error=to_wire(failed)))

    async def _answer(self, id: SequenceId, active: _Active, request: GenerateRequest) -> None:
        server = self._server()
        if server is None:
            raise ShuttingDown(f"the upstream server at {self._host} is not reachable")
        url = self._client.address.api + path_of(request)
        notice = notice_of(request, server.dialect) if active.is_rest else None
        await self._stream(id, active, url, body_of(request, server), notice)
        answer = active.answer
        if id in self._active:
            rates = self.meter.rates(id, answer.usage)
            self._end(id, *answer.ended(rates))

    async def _stream(
        self, id: SequenceId, active: _Active, url: str, body: Json, notice: Notice | None
    ) -> None:
        lines, answer = EventLines(), active.answer
        async with self._client.stream(url, body) as data:
            self._on_served()
            active.is_taken = True
            if notice is not None:
                noticed = Noticed(id=active.id, code=notice.code, message=notice.message)
                active.listener.produced((noticed,), ())
            async for part in data:
                items = [item for event in lines.push(part) for item in answer.take(event)]
                if id not in self._active:
                    return
                if items:
                    self._tell(id, active, items)
                if answer.is_over:
                    return
        answer.closed()

    def _tell(self, id: SequenceId, active: _Active, items: list[Item]) -> None:
        if active.answer.has_begun:
            self.meter.gained(id, active.answer.num_tokens, self._clock())
        active.listener.produced(tuple(items), ())

    def _end(self, id: SequenceId, *items: Item) -> None:
        """End a request: free its slot, and close its connection."""
        active = self._active.pop(id)
        self.meter.ended(id, active.answer.usage, self._clock())
        if active.task is not None and active.task is not asyncio.current_task():
            active.task.cancel()
        active.listener.produced(items, (id,))

    # ---- failures

    @property
    def _host(self) -> str:
        return self._client.address.shown

    def _turned_away(self, refusal: UpstreamRefusal) -> None:
        """Report a refusal. A server that serves other requests is only busy."""
        if not refusal.asks_for_pause:
            self._on_suspicion()
        if refusal.asks_for_pause or not any(each.is_taken for each in self._active.values()):
            self._on_refusal(refusal)

    def _error_of(self, error: Exception, active: _Active) -> RequestError:
        match error:
            case RequestError():
                return error
            case UpstreamRefusal():
                if error.is_servers:
                    self._turned_away(error)
                elif active.is_rest:
                    return unwilling(message_of(error), self._host)
                return error_of(error, self._host)
            case UpstreamFault() if active.is_rest and not active.answer.has_begun:
                return unwilling(str(error), self._host)
            case UpstreamLost() | UpstreamFault():
                self._on_suspicion()
                has_streamed = active.answer.has_begun
                return loss_of(str(error), self._host, has_streamed=has_streamed)
            case _:
                logger.error("a request failed", extra=context(request=active.id), exc_info=error)
                message = "the agent failed to answer the request; its log has the details"
                return InternalError(message)
