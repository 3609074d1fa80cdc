"""Sessions of people who are logged in to the dashboard; an id is the digest of a secret token.

Invariants: at most `max_sessions` sessions, at most `max_per_holder` of one key, and each ends at
most `lifetime` seconds after its log-in. A session grants nothing by itself: each request checks
that the session's key is still valid.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .identity import Identity

LIFETIME = 12 * 3600.0
"""The length of a working day in seconds."""

MAX_SESSIONS = 1024
MAX_PER_HOLDER = 32


@dataclass(frozen=True, slots=True)
class Session:
    """A session: its `id`, the `name` and `digest` of its key, and its end, in seconds since 1970.

    `is_saved`: the store has it, so that other balancers know it, too.
    """

    id: str
    name: str
    digest: str
    expires_at: float
    is_saved: bool = True


class Sessions:
    """The sessions. `now` is in seconds since 1970.

    Returned lists are the sessions that the call has ended.
    """

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
        self._by_id: dict[str, Session] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._by_id)

    def made(self, id: str, holder: Identity, now: float) -> Session:
        """Return a new session, for `put`."""
        return Session(id, holder.name, holder.digest, now + self._lifetime)

    def put(self, session: Session, now: float) -> list[Session]:
        """Add a session. Beyond the limit, the key with most sessions loses its oldest session."""
        over = self.due(now)
        own = [each for each in self._by_id.values() if each.digest == session.digest]
        surplus = own[: max(0, len(own) + 1 - self._max_per_holder)]
        if not surplus and len(self._by_id) >= self._max_sessions:
            [(fullest, _)] = Counter(each.digest for each in self._by_id.values()).most_common(1)
            surplus = [next(each for each in self._by_id.values() if each.digest == fullest)]
        for each in surplus:
            del self._by_id[each.id]
        self._by_id[session.id] = session
        return [*over, *surplus]

    def replace(self, saved: Iterable[Session], now: float) -> list[Session]:
        """Replace the saved sessions with the sessions in the store; unsaved ones continue."""
        before = self._by_id
        unsaved = [each for each in before.values() if not each.is_saved]
        known = sorted([*unsaved, *saved], key=lambda each: each.expires_at)[-self._max_sessions :]
        self._by_id = {each.id: each for each in known if now < each.expires_at}
        return [each for id, each in before.items() if id not in self._by_id]

    def find(self, id: str, now: float) -> Session | None:
        """Return the session with this id, unless it has ended."""
        found = self._by_id.get(id)
        return found if found is not None and now < found.expires_at else None

    def close(self, id: str) -> Session | None:
        """Remove and return a session."""
        return self._by_id.pop(id, None)

    def end(self, digest: str) -> None:
        """End the sessions of a key that is no longer valid."""
        rest = {id: each for id, each in self._by_id.items() if each.digest != digest}
        self._by_id = rest

    def due(self, now: float) -> list[Session]:
        """Remove and return the sessions that have reached their end."""
        over = [each for each in self._by_id.values() if each.expires_at <= now]
        for each in over:
            del self._by_id[each.id]
        return over

    def next_deadline(self) -> float | None:
        """Return the time of the next end, at which to call `due`; `None` without sessions."""
        return min((each.expires_at for each in self._by_id.values()), default=None)
