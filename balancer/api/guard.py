"""Declares the permission that each route needs, and checks the access key of each request.

The middleware checks the key before the request's handler runs. If the key becomes invalid
while the handler runs, the middleware ends the request. `Leases` do the same for open connections.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Middleware

from ...shared.errors import Forbidden, Unauthorized
from ..access.access import Access
from ..access.access_key import contains_key
from ..access.identity import Identity, Role
from .transport.callers import ended_key, identity_key
from .transport.fault_reports import RefusalReport, report_refusal, route_of
from .transport.http import Handler

logger = logging.getLogger(__name__)

LONGEST = 512
"""Maximum characters of a credential that are examined; keys are shorter."""

GRACE = 0.5
"""Seconds in which an answer can end normally after its key has ended. Then it is cut off."""

# ---- permissions


class Needs(Enum):
    """A permission that a route needs."""

    NOTHING = "no key"
    ANY = "any key but an agent's"
    """The permission of routes that say how to use a port."""
    CALL = "calling models"
    FIRST_FRAME = "calling models; the key may come in the first message"
    LIST = "seeing which models there are"
    VIEW = "seeing the fleet"
    OPERATE = "draining, cancelling, reloading"
    ADMINISTER = "changing the desired state and keys"
    JOIN = "serving as an agent"


_CALLERS: frozenset[Role] = frozenset({"inference", "operator", "admin"})
_VIEWERS: frozenset[Role] = frozenset({"viewer", "operator", "admin"})

ROLES: Mapping[Needs, frozenset[Role]] = {
    Needs.ANY: _CALLERS | _VIEWERS,
    Needs.CALL: _CALLERS,
    Needs.FIRST_FRAME: _CALLERS,
    Needs.LIST: _CALLERS | _VIEWERS,
    Needs.VIEW: _VIEWERS,
    Needs.OPERATE: frozenset({"operator", "admin"}),
    Needs.ADMINISTER: frozenset({"admin"}),
    Needs.JOIN: frozenset({"agent"}),
}
"""Operators and admins may call models, to try their changes."""

Table = Mapping[tuple[str, str], Needs]
"""The permission for each method and path, without patterns in the path.

`HEAD` needs the same permission as `GET`. See `api.route`.
"""


def needs_of(table: Table, method: str, path: str) -> Needs | None:
    """Return the permission that the route needs; `None` if `table` does not list the route."""
    return table.get(("GET" if method == "HEAD" else method, path))


def check_role(holder: Identity, needs: Needs | None) -> None:
    """Raise `Forbidden` if the holder's role does not have this permission."""
    if needs is None or not may(holder.role, needs):
        why = "nobody may use this" if needs is None else f"this needs {needs.value}"
        raise Forbidden(f"the key {holder.name!r} has the role {holder.role}; {why}", kind="role")


def may(role: Role, needs: Needs) -> bool:
    """Return whether a key of this role has the permission."""
    return needs is Needs.NOTHING or role in ROLES[needs]


# ---- keys in a request


class Headers(Protocol):
    """A request's headers, whose names ignore case."""

    def getall(self, name: str, default: Sequence[str]) -> Sequence[str]: ...


def keys_in(headers: Headers) -> list[str]:
    """Return the keys in `Authorization: Bearer` and `x-api-key`, in this order.

    Anthropic's clients send `x-api-key`. Other authorization schemes belong to a proxy, and are
    ignored.
    """
    found = []
    for value in headers.getall("Authorization", ()):
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            found.append(rest.strip())
    found += [value.strip() for value in headers.getall("x-api-key", ())]
    return [key for key in found if 0 < len(key) <= LONGEST]


def refuse_key_in_url(raw_path: str) -> None:
    """Refuse a request with an access key in its URL, even if no key is needed.

    Raises `Unauthorized`.
    """
    if contains_key(raw_path) or ("%" in raw_path and contains_key(unquote(raw_path))):
        raise Unauthorized(
            "do not send an access key in a URL, because proxies and browsers store URLs: "
            "send it as `Authorization: Bearer`, and revoke this key",
            kind="key_in_url",
        )


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Return whether a request asks for a WebSocket."""
    return headers.get("Upgrade", "").lower() == "websocket"


# ---- the middleware

Identify = Callable[[web.Request], Awaitable[Identity | None]]
"""Returns the sender of a request; `None` if no key is needed. Raises `Unauthorized`."""


def guard(access: Access, table: Table, identify: Identify | None = None) -> Middleware:
    """Return a middleware that admits requests as `table` says.

    `identify` finds the holder of a request's key or session. The holder, if any, is stored in the
    request under `identity_key`. If the key ends while the request is handled, the request ends
    too: see `while_good`.
    """
    identify = identify or by_key(access)

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        with RefusalReport(request):
            refuse_key_in_url(request.raw_path)
            needs = _needs(table, request)
            is_admitted = (access.is_open or needs is not Needs.NOTHING) and await _admit(
                request, needs
            )
        if is_admitted and needs is not Needs.NOTHING:
            return await while_good(access, request, handler)
        return await handler(request)

    async def _admit(request: web.Request, needs: Needs | None) -> bool:
        try:
            holder = await identify(request)
        except Unauthorized:
            if _may_come_later(request, needs):
                return False
            raise
        if holder is not None:
            if request.match_info.http_exception is None:
                check_role(holder, needs)
            request[identity_key] = holder
        return True

    return admit


def by_key(access: Access) -> Identify:
    """Return a function that identifies holders by the keys in a request's headers."""

    async def identify(request: web.Request) -> Identity | None:
        return await access.admitted(keys_in(request.headers))

    return identify


def _needs(table: Table, request: web.Request) -> Needs | None:
    if request.match_info.http_exception is not None:
        return Needs.ANY  # there is nothing; only a holder of a key learns that
    needs = needs_of(table, request.method, route_of(request))
    if needs is None:
        logger.error(
            "%s %s is refused: the route is missing from the table of permissions",
            request.method,
            route_of(request),
        )
    return needs


def _may_come_later(request: web.Request, needs: Needs | None) -> bool:
    """Return whether a WebSocket may send its key in the first message, as browsers must."""
    is_keyless = not keys_in(request.headers)
    return needs is Needs.FIRST_FRAME and is_keyless and is_upgrade(request.headers)


async def while_good(access: Access, request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle `request`, and end it if its key or session ends. Returns the response.

    A request with an incomplete body ends at once, with 401. Any other request has `GRACE` seconds
    to end by itself. Streams end in this time, and a caller who revokes its own key gets the
    answer. If the first key is made during a request without a key, the request continues if its
    body was complete.
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


# ---- connections that stay open


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
