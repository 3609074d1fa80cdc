"""Logs people in to the dashboard, and out, at all balancers; the store decides.

The store has only the digest of a token. An unknown token may come from a log-in at another
balancer, so the store is read again, at most once per `READ_INTERVAL`. While the store is away, a
log-in counts at this balancer only, and a log-out is written when the store is back.

Invariant: one change, or reading, at a time.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable

from ..store.port import StoreAway
from ..store.records import SavedSession
from ..store.store import Store
from .access import LONGEST_TIMER, Access
from .access_key import digest_of
from .identity import Identity
from .sessions import Session, Sessions

logger = logging.getLogger(__name__)

READ_INTERVAL = 0.1
"""Seconds between two readings of the store for tokens that are unknown here."""

STORE_TIMEOUT = 5.0
"""Seconds after which a store that does not answer counts as away."""

ENDED = "the session has ended: log in again"

_TOKEN_BYTES = 32
_TOKEN_LENGTH = 43
"""Characters of `_TOKEN_BYTES` in base64."""


def csrf_of(token: str) -> str:
    """Return the text that a call with a cookie must send in a header if it changes something."""
    return digest_of(f"csrf {token}")


class SessionService:
    """The log-ins of a balancer."""

    def __init__(
        self,
        access: Access,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._access = access
        self._store = store
        self._clock = clock
        self._random_text = random_text
        self._sessions = Sessions()
        self._unforgotten: dict[str, Session] = {}
        """Sessions that have ended but may still be in the store."""
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[object] | None = None
        self._read_at = -READ_INTERVAL
        self._timer: asyncio.TimerHandle | None = None
        access.listen(lambda holder, _error: self._key_ended(holder))

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, holder: Identity) -> tuple[str, Session]:
        """Log `holder` in. Returns the session and its token, which is stored nowhere."""
        token = self._random_text(_TOKEN_BYTES)
        session = self._sessions.made(digest_of(token), holder, self._clock())
        async with self._turn:
            try:
                async with asyncio.timeout(STORE_TIMEOUT):
                    await self._store.save_session(
                        SavedSession(
                            id=session.id,
                            name=session.name,
                            digest=session.digest,
                            expires_at=session.expires_at,
                        ),
                        self._clock(),
                    )
            except (StoreAway, TimeoutError) as error:
                logger.warning(
                    "a log-in could not be saved, so other balancers do not accept the session: %s",
                    error,
                )
                session = Session(
                    session.id, session.name, session.digest, session.expires_at, is_saved=False
                )
            over = self._sessions.put(session, self._clock())
            self._end(over)
            await self._forget(over)
        return token, session

    async def find(self, token: str) -> tuple[Session, Identity] | None:
        """Return the session of a token and its holder, if the holder's key is still valid."""
        if (found := self.known(token)) is None and len(token) == _TOKEN_LENGTH:
            await self._read_again()
            found = self.known(token)
        return found

    def known(self, token: str) -> tuple[Session, Identity] | None:
        """Return the same as `find`, without reading the store."""
        session = self._sessions.find(digest_of(token), self._clock())
        if session is None:
            return None
        holder = self._access.holder(session.name, session.digest, session=session.id)
        return None if holder is None else (session, holder)

    async def close(self, token: str) -> None:
        """Log out, and end all connections that were opened through the session."""
        async with self._turn:
            if (session := self._sessions.close(digest_of(token))) is not None:
                self._end([session])
                await self._forget([session])

    async def reconcile(self) -> bool:
        """Read the sessions of the store. Returns whether they could be read."""
        async with self._turn:
            try:
                async with asyncio.timeout(STORE_TIMEOUT):
                    await self._forget(self._unforgotten.values())
                    saved = await self._store.load_sessions()
            except (StoreAway, TimeoutError) as error:
                logger.warning(
                    "the balancer could not read the log-ins at other balancers from the store: %s",
                    error,
                )
                return False
            ring, now = self._access.ring, self._clock()
            known = [
                Session(each.id, each.name, each.digest, each.expires_at)
                for each in saved
                if each.id not in self._unforgotten
                and (key := ring.get(each.name)) is not None
                and key.digest == each.digest
                and key.problem(now) is None
            ]
            self._end(self._sessions.replace(known, now))
        return True

    def stop(self) -> None:
        """Stop watching for expiring sessions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- inside

    async def _read_again(self) -> None:
        """Start a reading of the store after this call; several callers share one reading."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._read_at + READ_INTERVAL - loop.time())
        self._reading, self._read_at = None, loop.time()
        await self.reconcile()

    async def _forget(self, sessions: Iterable[Session]) -> None:
        """Delete sessions from the store, now or when it is back."""
        saved = {each.id: each for each in sessions if each.is_saved}
        if not saved:
            return
        try:
            async with asyncio.timeout(STORE_TIMEOUT):
                await self._store.forget_sessions(list(saved))
        except (StoreAway, TimeoutError) as error:
            logger.warning(
                "a log-out could not be saved, so other balancers still accept the session: %s",
                error,
            )
            now = self._clock()
            kept = (self._unforgotten | saved).items()
            self._unforgotten = {id: each for id, each in kept if now < each.expires_at}
        else:
            self._unforgotten = {
                id: each for id, each in self._unforgotten.items() if id not in saved
            }

    def _key_ended(self, holder: Identity) -> None:
        """End the sessions of a key that has ended. If the key has a new role, sessions get it at
        once.
        """
        if self._access.holder(holder.name, holder.digest) is None:
            self._sessions.end(holder.digest)

    def _end(self, over: Iterable[Session]) -> None:
        for session in over:
            self._access.end_session(session.id, ENDED)
        self.stop()
        deadline = self._sessions.next_deadline()
        if deadline is not None:
            pause = min(max(deadline - self._clock(), 0.0), LONGEST_TIMER)
            self._timer = asyncio.get_running_loop().call_later(pause, self._due)

    def _due(self) -> None:
        self._end(self._sessions.due(self._clock()))
