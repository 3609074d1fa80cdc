"""Who is logged in to the dashboard: sessions by their secret tokens, in memory.

Invariants: at most `max_sessions` sessions, `max_per_holder` of one key; each is as old as it can
get after `lifetime`. Of a token only its digest is stored. A session opens nothing by itself:
whether its key still does is asked for each request.
"""

from dataclasses import dataclass

from .access_key import digest_of
from .identity import Identity

LIFETIME = 12 * 3600.0
"""Seconds: a working day."""

MAX_SESSIONS = 1024
MAX_PER_HOLDER = 32


@dataclass(frozen=True, slots=True)
class Session:
    """Whose it is (`name` and `digest` of the key), what calls that change something have to show
    (`csrf`), and when it ends, in seconds since 1970."""

    name: str
    digest: str
    csrf: str
    expires_at: float


class Sessions:
    """`now` is in seconds since 1970."""

    def __init__(
        self,
        *,
        lifetime: float = LIFETIME,
        max_sessions: int = MAX_SESSIONS,
        max_per_holder: int = MAX_PER_HOLDER,
    ) -> None:
        self._lifetime = lifetime
        self._max_sessions = max_sessions
        self._max_per_holder = max_per_holder
        self._by_token: dict[str, Session] = {}  # by the token's digest, oldest first

    def __len__(self) -> int:
        return len(self._by_token)

    def open(self, token: str, csrf: str, holder: Identity, now: float) -> Session:
        """Log `holder` in; where there are too many sessions, the oldest one ends."""
        self._forget_expired(now)
        own = [each for each, found in self._by_token.items() if found.digest == holder.digest]
        if len(own) >= self._max_per_holder:
            del self._by_token[own[0]]
        elif len(self._by_token) >= self._max_sessions:
            del self._by_token[next(iter(self._by_token))]
        session = Session(holder.name, holder.digest, csrf, now + self._lifetime)
        self._by_token[digest_of(token)] = session
        return session

    def apply(self, token_digest: str, session: Session, now: float) -> None:
        """Another balancer logged somebody in, or out where it has expired."""
        self._by_token.pop(token_digest, None)
        if now < session.expires_at:
            self._forget_expired(now)
            if len(self._by_token) >= self._max_sessions:
                del self._by_token[next(iter(self._by_token))]
            self._by_token[token_digest] = session

    def find(self, token: str, now: float) -> Session | None:
        """The session of that token, unless it has ended."""
        found = self._by_token.get(digest_of(token))
        return found if found is not None and now < found.expires_at else None

    def close(self, token: str) -> None:
        """Log out."""
        self._by_token.pop(digest_of(token), None)

    def end(self, digest: str) -> None:
        """A key opens nothing any more: its sessions end."""
        rest = {token: each for token, each in self._by_token.items() if each.digest != digest}
        self._by_token = rest

    def _forget_expired(self, now: float) -> None:
        while self._by_token:
            token, oldest = next(iter(self._by_token.items()))
            if now < oldest.expires_at:
                return
            del self._by_token[token]
