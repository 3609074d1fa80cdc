"""Sessions as browsers carry them: a cookie, and a header that other origins cannot send.

The cookie is `HttpOnly` and `SameSite=Strict`, and `Secure` where the connection is. The header,
`x-arriero-csrf`, is needed for whatever is not a GET: it stands in an answer that only pages of
this origin can read.
"""

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiohttp import web

from ....shared.errors import Forbidden, Unauthorized
from ...access.access import Access
from ...access.access_key import digest_of
from ...access.identity import Identity
from ...access.sessions import LIFETIME, Session, Sessions
from ...api.access.credentials import keys_in

TellSession = Callable[[str, Session], Awaitable[None]]
"""Tells other balancers of a session, by the digest of its token; it ended where it expired."""


async def nobody(_token_digest: str, _session: Session) -> None:
    """There are no others."""


COOKIE = "arriero_session"
CSRF_HEADER = "x-arriero-csrf"
_TOKEN_BYTES = 32
_SAFE_METHODS = ("GET", "HEAD")


class BrowserSessions:
    """Both sides of a session: the browser's cookie, and what the balancer keeps."""

    def __init__(
        self,
        access: Access,
        sessions: Sessions,
        *,
        tell: TellSession = nobody,
        clock: Callable[[], float] = time.time,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self.access = access
        self._sessions = sessions
        self._tell = tell
        self._untold: list[tuple[str, Session]] = []
        self._clock = clock
        self._random_text = random_text
        access.listen(lambda holder, _error: sessions.end(holder.digest))

    async def identify(self, request: web.Request) -> Identity | None:
        """By the keys in its headers, else by its cookie. Raises `Unauthorized` or `Forbidden`."""
        token = request.cookies.get(COOKIE)
        keys = keys_in(request.headers)
        if keys or token is None or self.access.is_open:
            return await self.access.admitted(keys)
        found = self.find(request)
        if found is None:
            raise Unauthorized("the session has ended: log in again")
        session, holder = found
        check_csrf(request, session)
        return holder

    def find(self, request: web.Request) -> tuple[Session, Identity] | None:
        """The session of its cookie, and whose it is, if the key still opens something."""
        session = self._sessions.find(request.cookies.get(COOKIE, ""), self._clock())
        if session is None:
            return None
        holder = self.access.holder(session.name, session.digest)
        return None if holder is None else (session, holder)

    async def tell_others(self) -> None:
        """Have other balancers know who logged in here, or out, before the browser does."""
        untold, self._untold = self._untold, []
        for token_digest, session in untold:
            await self._tell(token_digest, session)

    def open(self, request: web.Request, response: web.Response, holder: Identity) -> Session:
        """Log in, in place of whom the cookie stood for; `response` takes the new cookie along."""
        self._sessions.close(request.cookies.get(COOKIE, ""))
        token = self._random_text(_TOKEN_BYTES)
        session = self._sessions.open(token, self._random_text(_TOKEN_BYTES), holder, self._clock())
        self._untold.append((digest_of(token), session))
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
        if found is not None:
            self._untold.append((digest_of(token), replace(found[0], expires_at=0.0)))
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
    """Also where a proxy ended TLS. Who lies about that gets a cookie that he cannot use."""
    return request.secure or request.headers.get("X-Forwarded-Proto") == "https"
