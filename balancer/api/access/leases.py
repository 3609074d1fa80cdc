"""The holder of each request's key, and the connections that stay open only while the key is
valid."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from aiohttp import web

from ....shared.errors import Unauthorized
from ...access.access import Access
from ...access.identity import Identity
from ..transport.callers import ended_key, identity_key
from ..transport.fault_reports import report_refusal
from ..transport.http import Handler
from .permissions import Needs, check_role

GRACE = 0.5
"""Seconds that an answer has to end in good order when its key has ended. Then it is cut."""


class Leases:
    """Gives long connections (WebSockets, event streams) a lease that ends with their key."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def holder(self, request: web.Request) -> Identity | None:
        """Return the holder of the key of `request`; `None` if no key is needed."""
        return request.get(identity_key)

    @property
    def needs_key(self) -> bool:
        """Whether callers need a key."""
        return not self._access.is_open

    async def identify(self, key: str) -> Identity | None:
        """Return the holder of `key`, which a client sent over an open WebSocket.

        `None` if no key is needed. Raises `Unauthorized`, or `Forbidden` for another role.
        """
        holder = await self._access.admitted([key])
        if holder is not None:
            check_role(holder, Needs.CALL)
        return holder

    def lease(
        self, holder: Identity | None, on_end: Callable[[Unauthorized], None]
    ) -> AbstractContextManager[None]:
        """Return a context in which `on_end` is called if the permission of `holder` ends."""
        return self._access.lease(holder, on_end)

    async def while_here(self, request: web.Request, serve: Awaitable[None]) -> None:
        """Wait for `serve`, and cancel it if the permission of the holder of `request` ends."""
        task = asyncio.current_task()
        is_over = False

        def end(_error: Unauthorized) -> None:
            nonlocal is_over
            is_over = task is not None and task.cancel()

        with self.lease(self.holder(request), end):
            try:
                await serve
            except asyncio.CancelledError:
                if not is_over or task is None or task.uncancel():
                    raise


async def while_good(access: Access, request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle `request`, and end it if its key or session ends. Returns the response.

    A request with an incomplete body ends at once, with 401. Any other request has `GRACE` seconds
    to end by itself. Streams end in this time, and a caller who revokes its own key gets the
    answer. A request without a key continues if its body was complete when the first key was made.
    """
    end = _End(request)
    with access.watch(request.get(identity_key), end.begin):
        if ended_key in request:
            raise request[ended_key]
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if end.is_task_cancelled and end.task.uncancel() == 0:
                report_refusal(request, request[ended_key])
                raise request[ended_key] from None
            raise
        finally:
            end.stop()


class _End:
    """The forced end of one request, in a task of its own."""

    def __init__(self, request: web.Request) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is handled in a task")
        self.task = task
        self.is_task_cancelled = False
        self._request = request
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, error: Unauthorized) -> None:
        """Begin the end, because the key has ended or the first key was made."""
        is_complete = self._request.content.is_eof()
        if is_complete and identity_key not in self._request:
            return  # it was open before the first key was made, and goes on
        self._request[ended_key] = error
        if not is_complete:
            self._cut()
        else:
            self._timer = asyncio.get_running_loop().call_later(GRACE, self._cut)

    def _cut(self) -> None:
        if not self._request.writer.output_size:
            self.is_task_cancelled = self.task.cancel()
        elif self._request.transport is not None:
            self._request.transport.abort()

    def stop(self) -> None:
        """Stop, because the request has ended."""
        if self._timer is not None:
            self._timer.cancel()
