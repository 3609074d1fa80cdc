"""The routes of this room."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from aiohttp import hdrs, web
from pydantic import Field, TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from ....shared.errors import Conflict, Forbidden, Unauthorized
from ....shared.strict import STRICT
from ....shared.validation import parse_json
from ...access.identity import Identity, Role
from ...access.sessions import Session
from ...api.access.permissions import Needs
from ...api.openapi.document import Doc, json_answer
from ...api.openapi.schemas import Body
from ...api.route import Route
from ...api.transport.bodies import parsed
from ...api.transport.door_reports import refusals_reported
from .browser_sessions import BrowserSessions


@dataclass(frozen=True, slots=True)
class LogIn:
    """An access key."""

    __pydantic_config__ = STRICT
    key: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


LOG_IN: TypeAdapter[LogIn] = TypeAdapter(LogIn)


class SessionState(TypedDict):
    """Whether a key is needed here at all, and who is logged in; all null where nobody is.

    `csrf` is what calls that change something send as `x-arriero-csrf` beside the cookie.
    `expires_at`: seconds since 1970.
    """

    needs_key: bool
    name: str | None
    role: Role | None
    csrf: str | None
    expires_at: float | None


def routes(sessions: BrowserSessions) -> list[Route]:
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

    show_doc = Doc(
        "Session",
        "Who is logged in by the cookie, and whether anybody has to be.",
        {200: json_answer("The session, if there is one.", SessionState)},
    )
    log_in_doc = Doc(
        "LogIn",
        "Logs in with an access key: the answer sets a cookie, for browsers.",
        {200: json_answer("The new session.", SessionState)},
        body=Body(name="LogIn", adapter=LOG_IN),
        errors=(Unauthorized, Forbidden, Conflict),
    )
    log_out_doc = Doc(
        "LogOut",
        "Logs out; the session ends, and so does its cookie.",
        {200: json_answer("Nobody is logged in.", SessionState)},
        errors=(Forbidden,),
    )
    path = "/api/v1/session"
    return [
        Route("GET", path, Needs.NOTHING, shown, show_doc),
        Route("POST", path, Needs.NOTHING, log_in, log_in_doc),
        Route("DELETE", path, Needs.NOTHING, log_out, log_out_doc),
    ]


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
