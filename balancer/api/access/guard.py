"""The middleware that checks a request's access key and permission before its handler runs."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Middleware

from ....shared.errors import Unauthorized
from ...access.access import Access
from ...access.access_key import contains_key
from ...access.identity import Identity
from ..transport.callers import identity_key
from ..transport.fault_reports import RefusalReport, route_of
from ..transport.http import Handler
from .leases import while_good
from .permissions import Needs, Table, check_role, needs_of

LONGEST = 512
"""Characters of a credential that are looked at; keys are shorter, other services' are not."""


class Headers(Protocol):
    """A request's headers, whose names ignore case."""

    def getall(self, name: str, default: Sequence[str]) -> Sequence[str]: ...


def keys_in(headers: Headers) -> list[str]:
    """The keys in `Authorization: Bearer` and `x-api-key` (Anthropic's clients), in this order.

    Other schemes belong to a proxy, and are ignored.
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
    """Whether a request asks for a WebSocket."""
    return headers.get("Upgrade", "").lower() == "websocket"


logger = logging.getLogger(__name__)

ACCESS = web.AppKey("ACCESS", Access)
"""App key of the balancer's `Access`."""

Identify = Callable[[web.Request], Awaitable[Identity | None]]
"""Finds the sender of a request; `None` if no key is needed. Raises `Unauthorized`."""


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
    """Whether a WebSocket may send its key in the first message, because browsers send no
    headers."""
    is_keyless = not keys_in(request.headers)
    return needs is Needs.FIRST_FRAME and is_keyless and is_upgrade(request.headers)
