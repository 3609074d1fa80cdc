"""`/api/v1/session`: people log in to the dashboard with a key, and out.

Browsers carry a session as a cookie, and a header that other origins cannot send.

The cookie is `HttpOnly` and `SameSite=Strict`, and `Secure` where the connection is. The header,
`x-arriero-csrf`, is needed for whatever is not a GET: it stands in an answer that only pages of
this origin can read.
"""

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from aiohttp import hdrs, web
from pydantic import Field, TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from ...shared.errors import Conflict, Forbidden, InvalidRequest, Unauthorized
from ...shared.strict import STRICT
from ...shared.validation import echo, parse_json
from ..access.access import Access
from ..access.access_key import digest_of
from ..access.identity import Identity, Role
from ..access.sessions import LIFETIME, Session, Sessions
from ..api.access.credentials import keys_in
from ..api.access.permissions import Needs
from ..api.openapi.document import Doc, json_answer, parameter
from ..api.openapi.schemas import Body
from ..api.route import Route
from ..api.transport.bodies import parsed
from ..api.transport.fault_reports import refusals_reported

Announce = Callable[[str, Session], Awaitable[None]]
"""Sends other balancers a session, by the digest of its token; it ended where it expired."""

ENDED = "the session has ended: log in again"

COOKIE = "arriero_session"
CSRF_HEADER = "x-arriero-csrf"
SIGN_OUT_HEADER = "x-arriero-sign-out"
"""What a proxy with a login of its own adds to a page's calls: where people end its session."""

_PLACE = re.compile(r"(https?://[^/]|/(?![/\\]))[!-~]*", re.ASCII)
"""A path of this origin, or an address: no script, and no other origin by a path of two slashes."""
_TOKEN_BYTES = 32
_SAFE_METHODS = ("GET", "HEAD")


class BrowserSessions:
    """Both sides of a session: the browser's cookie, and the balancer's record."""

    def __init__(
        self,
        access: Access,
        sessions: Sessions,
        *,
        announce: Announce | None = None,
        clock: Callable[[], float] = time.time,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self.access = access
        self._sessions = sessions
        self._announce = announce
        self._unannounced: list[tuple[str, Session]] = []
        self._clock = clock
        self._random_text = random_text
        access.listen(lambda holder, _error: self._forget(holder))

    async def identify(self, request: web.Request) -> Identity | None:
        """By the keys in its headers, else by its cookie. Raises `Unauthorized` or `Forbidden`."""
        token = request.cookies.get(COOKIE)
        keys = keys_in(request.headers)
        if keys or token is None or self.access.is_open:
            return await self.access.admitted(keys)
        found = self.find(request)
        if found is None:
            raise Unauthorized(ENDED)
        session, holder = found
        check_csrf(request, session)
        return holder

    def find(self, request: web.Request) -> tuple[Session, Identity] | None:
        """The session of its cookie, and whose it is, if the key still opens something."""
        session = self._sessions.find(request.cookies.get(COOKIE, ""), self._clock())
        if session is None:
            return None
        holder = self.access.holder(session.name, session.digest)
        if holder is None:
            return None
        return session, replace(holder, session=digest_of(request.cookies[COOKIE]))

    def _forget(self, holder: Identity) -> None:
        """End the sessions of a key that opens nothing any more; one with another role may."""
        if self.access.holder(holder.name, holder.digest) is None:
            self._sessions.end(holder.digest)

    async def announce(self) -> None:
        """Have other balancers know who logged in here, or out, before the browser does."""
        unannounced, self._unannounced = self._unannounced, []
        if self._announce is not None:
            for token_digest, session in unannounced:
                await self._announce(token_digest, session)

    def open(self, request: web.Request, response: web.Response, holder: Identity) -> Session:
        """Log in, in place of whom the cookie stood for; `response` takes the new cookie along."""
        self._sessions.close(request.cookies.get(COOKIE, ""))
        token = self._random_text(_TOKEN_BYTES)
        session = self._sessions.open(token, self._random_text(_TOKEN_BYTES), holder, self._clock())
        self._unannounced.append((digest_of(token), session))
        response.set_cookie(
            COOKIE,
            token,
            max_age=int(LIFETIME),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=_is_secure(request),
        )
        return session

    def close(self, request: web.Request, response: web.Response) -> None:
        """Log out."""
        if (found := self.find(request)) is not None:
            check_csrf(request, found[0])
        token = request.cookies.get(COOKIE, "")
        self._sessions.close(token)
        self.access.end_session(digest_of(token), ENDED)
        if found is not None:
            self._unannounced.append((digest_of(token), replace(found[0], expires_at=0.0)))
        response.del_cookie(
            COOKIE, path="/", httponly=True, samesite="Strict", secure=_is_secure(request)
        )


def check_csrf(request: web.Request, session: Session) -> None:
    """Raises `Forbidden` where a call that may change something lacks the session's header."""
    shown = request.headers.get(CSRF_HEADER, "")
    if request.method in _SAFE_METHODS:
        return
    if not hmac.compare_digest(shown.encode(errors="replace"), session.csrf.encode()):
        raise Forbidden(
            f"`{CSRF_HEADER}` is missing or wrong: calls by cookie send the `csrf` of "
            "GET /api/v1/session with it"
        )


def _is_secure(request: web.Request) -> bool:
    """Also where a proxy ended TLS. Whoever lies about that gets a useless cookie."""
    return request.secure or request.headers.get("X-Forwarded-Proto") == "https"


@dataclass(frozen=True, slots=True)
class LogIn:
    """An access key."""

    __pydantic_config__ = STRICT
    key: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


LOG_IN: TypeAdapter[LogIn] = TypeAdapter(LogIn)


class SessionState(TypedDict):
    """Whether a key is needed here at all, and who is logged in; all null without anyone.

    `csrf` is what calls that change something send as `x-arriero-csrf` beside the cookie.
    `expires_at`: seconds since 1970. Both are null where the request has a key in its headers,
    which a proxy in front may add: there is no session then. `sign_out` is where people end the
    session of that proxy, if it says so by the header `x-arriero-sign-out`.
    """

    needs_key: bool
    name: str | None
    role: Role | None
    csrf: str | None
    expires_at: float | None
    sign_out: str | None


def routes(sessions: BrowserSessions) -> list[Route]:
    """Who is logged in, logging in, and logging out."""

    async def shown(request: web.Request) -> web.Response:
        keys = keys_in(request.headers)
        if keys and not sessions.access.is_open:
            with refusals_reported(request):
                holder = await sessions.access.admitted(keys)
                check_sees(holder)
            return _answer(state_of(sessions, None, holder, sign_out_of(request)))
        session, holder = sessions.find(request) or (None, None)
        return _answer(state_of(sessions, session, holder, sign_out_of(request)))

    async def log_in(request: web.Request) -> web.Response:
        given = await parsed(request, partial(parse_json, LOG_IN))
        sign_out = sign_out_of(request)
        with refusals_reported(request):
            holder = await sessions.access.admitted([given.key])
            if holder is None:
                raise Conflict("there are no access keys yet, so nobody has to log in")
            check_sees(holder)
        response = web.Response()
        session = sessions.open(request, response, holder)
        await sessions.announce()
        return _answer(state_of(sessions, session, holder, sign_out), response)

    async def log_out(request: web.Request) -> web.Response:
        response = web.Response()
        sign_out = sign_out_of(request)
        sessions.close(request, response)
        await sessions.announce()
        return _answer(state_of(sessions, None, None, sign_out), response)

    of_proxy = parameter(SIGN_OUT_HEADER, "header")
    show_doc = Doc(
        "Session",
        "Who is logged in by the cookie, or by a key, and whether anybody has to be.",
        {200: json_answer("The session, if there is one.", SessionState)},
        errors=(Unauthorized, Forbidden, InvalidRequest),
        parameters=(of_proxy,),
    )
    log_in_doc = Doc(
        "LogIn",
        "Logs in with an access key: the answer sets a cookie, for browsers.",
        {200: json_answer("The new session.", SessionState)},
        body=Body(name="LogIn", adapter=LOG_IN),
        errors=(Unauthorized, Forbidden, Conflict),
        parameters=(of_proxy,),
    )
    log_out_doc = Doc(
        "LogOut",
        "Logs out; the session ends, and so does its cookie.",
        {200: json_answer("Nobody is logged in.", SessionState)},
        errors=(Forbidden, InvalidRequest),
        parameters=(of_proxy,),
    )
    path = "/api/v1/session"
    return [
        Route("GET", path, Needs.NOTHING, shown, show_doc),
        Route("POST", path, Needs.NOTHING, log_in, log_in_doc),
        Route("DELETE", path, Needs.NOTHING, log_out, log_out_doc),
    ]


def check_sees(holder: Identity | None) -> None:
    """Raises `Forbidden` where the role is for programs."""
    if holder is not None and holder.role in ("agent", "inference"):
        raise Forbidden(
            f"the key {holder.name!r} has the role {holder.role}, which sees "
            "nothing here: log in as viewer, operator or admin"
        )


def sign_out_of(request: web.Request) -> str | None:
    """Where people end the session of the proxy in front. Raises `InvalidRequest`."""
    place = request.headers.get(SIGN_OUT_HEADER)
    if place is None or _PLACE.fullmatch(place):
        return place
    raise InvalidRequest(
        f"`{SIGN_OUT_HEADER}` must be a path, such as /oauth2/sign_out, or an address with "
        f"https://, not {echo(place)}",
        field=SIGN_OUT_HEADER,
    )


def state_of(
    sessions: BrowserSessions,
    session: Session | None,
    holder: Identity | None,
    sign_out: str | None,
) -> SessionState:
    """The session as its page sees it."""
    return SessionState(
        needs_key=not sessions.access.is_open,
        name=None if holder is None else holder.name,
        role=None if holder is None else holder.role,
        csrf=None if session is None else session.csrf,
        expires_at=None if session is None else session.expires_at,
        sign_out=sign_out,
    )


def _answer(state: SessionState, response: web.Response | None = None) -> web.Response:
    response = web.Response() if response is None else response
    response.content_type = "application/json"
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.body = to_json(state)
    return response
