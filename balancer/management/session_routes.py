"""`/api/v1/session`: people log in to the dashboard with a key, and log out.

Browsers send the session as a cookie, together with a header that other origins cannot send.

The cookie is `HttpOnly` and `SameSite=Strict`, and `Secure` if the connection is secure. Every
method but GET needs the header `x-arriero-csrf`. Its value is in an answer that only pages of this
origin can read.
"""

import hmac
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from aiohttp import web
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ...shared.errors import Conflict, Forbidden, InvalidRequest, Unauthorized
from ...shared.strict import STRICT
from ...shared.validation import echo, parse_json
from ..access.access import Access
from ..access.identity import Identity, Role
from ..access.session_service import ENDED, SessionService, csrf_of
from ..access.sessions import LIFETIME, Session
from ..api.common.answering import uncached_json
from ..api.guard import Identify, Needs, keys_in
from ..api.openapi.document import Doc, json_answer, parameter
from ..api.openapi.schemas import Body
from ..api.route import Route
from ..api.transport.bodies import parsed
from ..api.transport.fault_reports import RefusalReport

COOKIE = "arriero_session"
CSRF_HEADER = "x-arriero-csrf"
SIGN_OUT_HEADER = "x-arriero-sign-out"
"""A header from a proxy with its own login: the address that ends the proxy's session."""

_PLACE = re.compile(r"(https?://[^/]|/(?![/\\]))[!-~]*", re.ASCII)
"""A path of this origin, or an http(s) address.

Scripts and paths with two slashes do not match.
"""
_SAFE_METHODS = ("GET", "HEAD")


def by_cookie(access: Access, sessions: SessionService) -> Identify:
    """Return a function that identifies callers by the keys in headers, or else by the cookie.

    The function raises `Forbidden` if a call by cookie lacks the header.
    """

    async def identify(request: web.Request) -> Identity | None:
        token = request.cookies.get(COOKIE)
        keys = keys_in(request.headers)
        if keys or token is None or access.is_open:
            return await access.admitted(keys)
        found = await sessions.find(token)
        if found is None:
            raise Unauthorized(ENDED, kind="ended_session")
        check_csrf(request, token)
        return found[1]

    return identify


def check_csrf(request: web.Request, token: str) -> None:
    """Check the session's header if the method may change something. Raises `Forbidden`."""
    shown = request.headers.get(CSRF_HEADER, "")
    if request.method in _SAFE_METHODS:
        return
    if not hmac.compare_digest(shown.encode(errors="replace"), csrf_of(token).encode()):
        raise Forbidden(
            f"`{CSRF_HEADER}` is missing or wrong: calls by cookie send the `csrf` of "
            "GET /api/v1/session with it",
            kind="csrf",
        )


def _is_secure(request: web.Request) -> bool:
    """Return whether the connection is secure, even if a proxy ends TLS.

    A false claim of the client only makes its cookie useless.
    """
    return request.secure or request.headers.get("X-Forwarded-Proto") == "https"


@dataclass(frozen=True, slots=True)
class LogIn:
    """An access key."""

    __pydantic_config__ = STRICT
    key: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


LOG_IN: TypeAdapter[LogIn] = TypeAdapter(LogIn)


class SessionState(TypedDict):
    """Whether a key is needed, and the name and role of the caller who is logged in.

    All fields but `needs_key` and `sign_out` are null if nobody is logged in. Calls that change
    something send `csrf` as `x-arriero-csrf` together with the cookie. `expires_at` is in seconds
    since 1970. `csrf` and `expires_at` are null if the request has a key in its headers, which a
    proxy may add, because then there is no session. `sign_out` is the address that ends the
    proxy's session, if the proxy sends the header `x-arriero-sign-out`.
    """

    needs_key: bool
    name: str | None
    role: Role | None
    csrf: str | None
    expires_at: float | None
    sign_out: str | None


_OF_PROXY = parameter(SIGN_OUT_HEADER, "header")
_SHOW_DOC = Doc(
    "Session",
    "Who is logged in by the cookie, or by a key, and whether anybody has to be.",
    {200: json_answer("The session, if there is one.", SessionState)},
    errors=(Unauthorized, Forbidden, InvalidRequest),
    parameters=(_OF_PROXY,),
)
_LOG_IN_DOC = Doc(
    "LogIn",
    "Logs in with an access key: the answer sets a cookie, for browsers.",
    {200: json_answer("The new session.", SessionState)},
    body=Body(name="LogIn", adapter=LOG_IN),
    errors=(Unauthorized, Forbidden, Conflict),
    parameters=(_OF_PROXY,),
)
_LOG_OUT_DOC = Doc(
    "LogOut",
    "Logs out; the session ends, and so does its cookie.",
    {200: json_answer("Nobody is logged in.", SessionState)},
    errors=(Forbidden, InvalidRequest),
    parameters=(_OF_PROXY,),
)


def routes(access: Access, sessions: SessionService) -> list[Route]:
    """Return the routes of the session: state, login and logout."""

    def answer(
        request: web.Request,
        holder: Identity | None,
        session: Session | None = None,
        token: str = "",
    ) -> web.Response:
        state = SessionState(
            needs_key=not access.is_open,
            name=None if holder is None else holder.name,
            role=None if holder is None else holder.role,
            csrf=None if session is None else csrf_of(token),
            expires_at=None if session is None else session.expires_at,
            sign_out=sign_out_of(request),
        )
        return uncached_json(state)

    async def shown(request: web.Request) -> web.Response:
        keys = keys_in(request.headers)
        if keys and not access.is_open:
            with RefusalReport(request):
                holder = await access.admitted(keys)
                check_sees(holder)
            return answer(request, holder)
        token = request.cookies.get(COOKIE, "")
        session, holder = await sessions.find(token) or (None, None)
        return answer(request, holder, session, token)

    async def log_in(request: web.Request) -> web.Response:
        given = await parsed(request, partial(parse_json, LOG_IN))
        sign_out_of(request)  # it is refused before anybody is logged in
        with RefusalReport(request):
            holder = await access.admitted([given.key])
            if holder is None:
                raise Conflict("there are no access keys yet, so nobody has to log in")
            check_sees(holder)
        await sessions.close(request.cookies.get(COOKIE, ""))
        token, session = await sessions.open(holder)
        response = answer(request, holder, session, token)
        response.set_cookie(
            COOKIE,
            token,
            max_age=int(LIFETIME),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=_is_secure(request),
        )
        return response

    async def log_out(request: web.Request) -> web.Response:
        token = request.cookies.get(COOKIE, "")
        response = answer(request, None)
        if await sessions.find(token) is not None:
            check_csrf(request, token)
            await sessions.close(token)
        response.del_cookie(
            COOKIE, path="/", httponly=True, samesite="Strict", secure=_is_secure(request)
        )
        return response

    path = "/api/v1/session"
    return [
        Route("GET", path, Needs.NOTHING, shown, _SHOW_DOC),
        Route("POST", path, Needs.NOTHING, log_in, _LOG_IN_DOC),
        Route("DELETE", path, Needs.NOTHING, log_out, _LOG_OUT_DOC),
    ]


def check_sees(holder: Identity | None) -> None:
    """Check that the role of `holder` may see the dashboard. Raises `Forbidden`."""
    if holder is not None and holder.role in ("agent", "inference"):
        raise Forbidden(
            f"the key {holder.name!r} has the role {holder.role}, which sees "
            "nothing here: log in as viewer, operator or admin",
            kind="role",
        )


def sign_out_of(request: web.Request) -> str | None:
    """Return the address that ends the session at a proxy in front. Raises `InvalidRequest`."""
    place = request.headers.get(SIGN_OUT_HEADER)
    if place is None or _PLACE.fullmatch(place):
        return place
    raise InvalidRequest(
        f"`{SIGN_OUT_HEADER}` must be a path, such as /oauth2/sign_out, or an address with "
        f"https://, not {echo(place)}",
        field=SIGN_OUT_HEADER,
    )
