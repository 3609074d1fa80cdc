"""Who may come in now, and what ends when somebody no longer may.

The keyring decides; this holds it, the clock, the timer of the next expiry, and what callers have
open for long (`lease`). Everything runs on the event loop, and admitting a caller whose key is
known never waits.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ...shared.errors import Unauthorized
from ..store.port import StoreAway
from .access_key import AccessKey, is_key
from .identity import Identity
from .keyring import UNKNOWN, Keyring

logger = logging.getLogger(__name__)

RELOAD_INTERVAL = 1.0
"""Seconds between two readings of the store for a key that is unknown here."""

LONGEST_TIMER = 3600.0
"""Seconds. The wall clock may be set; the timer runs on another clock, so it is checked again."""

Load = Callable[[], Awaitable[Sequence[AccessKey]]]
OnEnded = Callable[[Identity, Unauthorized], None]
OnEnd = Callable[[Unauthorized], None]


class Access:
    """One for each balancer; both ports share it."""

    def __init__(
        self,
        keys: Iterable[AccessKey] = (),
        *,
        fixed: AccessKey | None = None,
        load: Load | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`fixed` is a key that no store has. `load` reads the store's; raises `StoreAway`."""
        self._clock = clock
        self._fixed = fixed
        self._load = load
        self.ring = Keyring(self._with_fixed(keys), now=clock())
        self._leases: dict[str, dict[object, OnEnd]] = {}
        self._listeners: list[OnEnded] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loaded_at = -RELOAD_INTERVAL
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether no key is needed, since nobody ever had one."""
        return self.ring.is_open

    @property
    def num_leases(self) -> int:
        """What is open for long: sockets and streams."""
        return sum(map(len, self._leases.values()))

    def listen(self, on_ended: OnEnded) -> None:
        """Tell `on_ended` of each holder whose key was revoked or replaced, or has expired."""
        self._listeners.append(on_ended)

    # ---- callers come

    async def admitted(self, keys: Sequence[str]) -> Identity | None:
        """Who holds one of `keys`, those that a caller sent; `None` where no key is needed.

        A key that is not known here may have been made by another program since: the store is
        asked, at most once a `RELOAD_INTERVAL`. Raises `Unauthorized`.
        """
        if self.is_open:
            await self._reload(keys)
        try:
            return self.identify(keys)
        except Unauthorized as error:
            if error.message != UNKNOWN or not await self._reload(keys):
                raise
        return self.identify(keys)

    def identify(self, keys: Sequence[str]) -> Identity | None:
        """As `admitted`, by what is known here."""
        if self.is_open:
            return None
        if not keys:
            raise Unauthorized("an access key is needed: send it as `Authorization: Bearer ark_…`")
        error = Unauthorized(UNKNOWN)
        for key in keys:
            try:
                return self.ring.identify(key, self._clock())
            except Unauthorized as refusal:
                error = refusal
        raise error

    def holder(self, name: str, digest: str) -> Identity | None:
        """Who holds the key of that name still, if it is the one with that digest and opens."""
        key = self.ring.get(name)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        now = self._clock()
        if key.problem(now) is not None:
            return None
        self.ring.used(key.identity, now)
        return key.identity

    def holder_of(self, owner: str) -> Identity | None:
        """Who made what belongs to `owner`, if its key opens something still."""
        now = self._clock()
        valid = (key.identity for key in self.ring.records() if key.problem(now) is None)
        return next((holder for holder in valid if holder.owner == owner), None)

    @contextmanager
    def lease(self, holder: Identity | None, on_end: OnEnd) -> Iterator[None]:
        """Inside, `on_end` is called once if `holder` may no longer be here. It must not raise."""
        if holder is None:
            yield
            return
        token = object()
        leases = self._leases.setdefault(holder.digest, {})
        leases[token] = on_end
        try:
            yield
        finally:
            leases.pop(token, None)
            if not leases:
                self._leases.pop(holder.digest, None)

    # ---- keys change

    def put(self, key: AccessKey) -> None:
        """A key is new, or another now."""
        self._end(self.ring.put(key, self._clock()))

    def forget(self, name: str) -> None:
        """A key is no more."""
        self._end(self.ring.forget(name, self._clock()))

    def replace(self, keys: Iterable[AccessKey]) -> None:
        """These are the keys of the store."""
        self._end(self.ring.replace(self._with_fixed(keys), self._clock()))

    def start(self) -> None:
        """Watch over expiries from now on; needs the event loop."""
        self._end(self.ring.due(self._clock()))

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- inside

    def _with_fixed(self, keys: Iterable[AccessKey]) -> list[AccessKey]:
        """The store decides about a key that it has, too."""
        keys = list(keys)
        if self._fixed is None or any(key.digest == self._fixed.digest for key in keys):
            return keys
        return [*keys, self._fixed]

    def _end(self, holders: Iterable[Identity]) -> None:
        for holder in holders:
            error = self._reason(holder)
            logger.info("%s; what it had open ends", error.message)
            for listener in self._listeners:
                listener(holder, error)
            for on_end in list(self._leases.pop(holder.digest, {}).values()):
                on_end(error)
        self._arm()

    def _reason(self, holder: Identity) -> Unauthorized:
        key = self.ring.get(holder.name)
        problem = None if key is None else key.problem(self._clock())
        return Unauthorized(problem or f"the key {holder.name!r} was replaced by another one")

    def _arm(self) -> None:
        self.stop()
        deadline = self.ring.next_deadline()
        if deadline is not None:
            pause = min(max(deadline - self._clock(), 0.0), LONGEST_TIMER)
            self._timer = asyncio.get_running_loop().call_later(pause, self.start)

    async def _reload(self, keys: Sequence[str]) -> bool:
        """Whether the store was read; only for what looks like a key."""
        if self._load is None or not any(map(is_key, keys)):
            return False
        now = asyncio.get_running_loop().time()
        if self._loading is None and now - self._loaded_at < RELOAD_INTERVAL:
            return False
        if self._loading is None:
            self._loaded_at = now
            self._loading = asyncio.create_task(self._load_again(self._load))
        await asyncio.shield(self._loading)
        return True

    async def _load_again(self, load: Load) -> None:
        try:
            self.replace(await load())
        except StoreAway as error:
            logger.warning("the keys cannot be read from the store: %s", error)
        finally:
            self._loading = None
