"""Builds the `Caller` of an HTTP request or a WebSocket."""

from dataclasses import replace

from aiohttp import hdrs, web

from ....shared.errors import Unauthorized
from ....shared.tracing.trace_context import TraceContext, read_traceparent
from ...access.identity import Identity
from ...fleet.caller import Caller

LONGEST_USER_AGENT = 120
"""Maximum characters of a `User-Agent` that are kept; the log shows them with each request."""

identity_key = web.RequestKey("identity_key", Identity)
"""Request key of the holder of the access key in the request, if a key was needed."""

ended_key = web.RequestKey("ended_key", Unauthorized)
"""Request key of the reason why the access key in the request is no longer valid."""

_known_key = web.RequestKey("_known_key", Caller)
"""Request key of the request's caller, set at its first use: after the check of its key."""


def check_authority(request: web.Request) -> None:
    """Check that the key or session of `request` is still valid. Raises `Unauthorized`."""
    if (error := request.get(ended_key)) is not None:
        raise error


def caller_of(request: web.Request) -> Caller:
    """Return the caller of `request`, or of the WebSocket that it opened.

    Raises the errors of `check_authority`.
    """
    check_authority(request)
    return known_caller(request)


def known_caller(request: web.Request) -> Caller:
    """Return the caller of `request`, even if its key has ended."""
    caller = request.get(_known_key)
    if caller is None:
        caller = request[_known_key] = _caller_of(request, request.get(identity_key))
    return caller


def _caller_of(request: web.Request, holder: Identity | None) -> Caller:
    user_agent = request.headers.get(hdrs.USER_AGENT)
    caller = Caller(
        address=request.remote,
        user_agent=None if user_agent is None else user_agent[:LONGEST_USER_AGENT],
        trace_parent=trace_parent_of(request),
        connection=_connection_of(request),
    )
    return caller if holder is None else held_by(caller, holder)


def _connection_of(request: web.Request) -> int | None:
    """Return the port of the other end of the connection."""
    name = None if request.transport is None else request.transport.get_extra_info("peername")
    return name[1] if isinstance(name, tuple) and len(name) > 1 else None


def held_by(caller: Caller, holder: Identity) -> Caller:
    """Return the caller with the key that the caller has sent later."""
    return replace(caller, name=holder.name, limits=holder.limits, owner=holder.owner)


def trace_parent_of(request: web.Request) -> TraceContext | None:
    """Return the span that the client names as parent, if it names exactly one."""
    headers = request.headers.getall("traceparent", [])
    return read_traceparent(headers[0]) if len(headers) == 1 else None
