"""The routes of this room."""

from functools import partial

from aiohttp import hdrs, web
from pydantic_core import to_json

from ....shared.errors import Conflict, Forbidden
from ....shared.validation import parse_json
from ...access.identity import Identity
from ...access.sessions import Session
from ...api.transport.bodies import parsed
from ...api.transport.door_reports import refusals_reported
from .answer_types import SessionState
from .bodies import LOG_IN
from .browser_sessions import BrowserSessions


def routes(sessions: BrowserSessions) -> list[web.RouteDef]:
    """All of this room."""

    async def shown(request: web.Request) -> web.Response:
        found = sessions.find(request)
        return _answer(state_of(sessions, *(found or (None, None))))

    async def log_in(request: web.Request) -> web.Response:
        given = await parsed(request, partial(parse_json, LOG_IN))
        with refusals_reported(request):
            holder = await sessions.access.admitted([given.key])
            if holder is None:
                raise Conflict("there are no access keys yet, so nobody has to log in")
            if holder.role in ("agent", "inference"):
                raise Forbidden(
                    f"the key {holder.name!r} has the role {holder.role}, which sees "
                    "nothing here: log in as viewer, operator or admin"
                )
        response = web.Response()
        session = sessions.open(request, response, holder)
        await sessions.tell_others()
        return _answer(state_of(sessions, session, holder), response)

    async def log_out(request: web.Request) -> web.Response:
        response = web.Response()
        sessions.close(request, response)
        await sessions.tell_others()
        return _answer(state_of(sessions, None, None), response)

    path = "/api/v1/session"
    return [web.get(path, shown), web.post(path, log_in), web.delete(path, log_out)]


def state_of(
    sessions: BrowserSessions, session: Session | None, holder: Identity | None
) -> SessionState:
    """The session as its page sees it."""
    return SessionState(
        needs_key=not sessions.access.is_open,
        name=None if holder is None else holder.name,
        role=None if holder is None else holder.role,
        csrf=None if session is None else session.csrf,
        expires_at=None if session is None else session.expires_at,
    )


def _answer(state: SessionState, response: web.Response | None = None) -> web.Response:
    response = web.Response() if response is None else response
    response.content_type = "application/json"
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.body = to_json(state)
    return response
