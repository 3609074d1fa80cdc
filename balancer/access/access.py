"""Admits callers by their keys, and ends their open connections when a key ends.

The keyring decides. `Access` holds the keyring, the clock, the timer of the next expiry, and the
long-lived connections of callers (`lease`). Everything runs on the event loop, and admitting a
caller whose key is known never waits.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from ...shared.errors import Unauthorized
from ...shared.messages import Issue
from ..store.port import StoreAway
from .access_key import AccessKey, is_key
from .identity import Identity
from .keyring import UNKNOWN, Keyring

logger = logging.getLogger(__name__)

RELOAD_INTERVAL = 1.0
"""Minimum seconds between two readings of the store because of an unknown key."""

LONGEST_TIMER = 3600.0
"""Maximum seconds of a timer. The wall clock may be set, but the timer runs on another clock."""

NEEDED = "an access key is needed: send it as `Authorization: Bearer ark_…`"

BEREFT = "the access keys are gone from the store, so the balancer lets nobody in"
BEREFT_HINT = (
    "restore the keys, or make a new key with `arriero keys bootstrap`; to serve requests "
    "without keys, start the balancer with --without-keys"
)

NOBODY = "nobody"
"""Stands for a caller without a key, in place of a digest."""

Load = Callable[[], Awaitable[Sequence[AccessKey]]]
OnEnded = Callable[[Identity, Unauthorized], None]
OnEnd = Callable[[Unauthorized], None]


class _Watch:
    """A context in which a callback waits for the end of a key (by its digest) or of a session."""

    __slots__ = ("_access", "_holder", "names", "on_end")

    def __init__(self, access: "Access", holder: Identity | None, on_end: OnEnd) -> None:
        self.names = (NOBODY,) if holder is None else (holder.digest, holder.session)
        self.on_end = on_end
        self._access = access
        self._holder = holder

    def __enter__(self) -> None:
        self._access.begin_watch(self, self._holder)

    def __exit__(self, *_exception: object) -> None:
        self._access.end_watch(self)


class Access:
    """The access keys of a balancer; both ports share it."""

    def __init__(
        self,
        keys: Iterable[AccessKey] = (),
        *,
        fixed: AccessKey | None = None,
        had_keys: bool = False,
        load: Load | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the rules. `fixed` is a key that is in no store.

        `load` reads the keys of the store, and raises `StoreAway`.

        `had_keys`: the store once had keys, whether or not it has any now.
        """
        self._clock = clock
        self._fixed = fixed
        self._load = load
        self._had_keys = had_keys
        self._was_bereft = False
        self.ring = Keyring(now=clock())
        self._know(keys)
        self._watches: dict[str, dict[_Watch, None]] = {}
        """Watches by the digest of the key, or by the session; `NOBODY` is for callers without a
        key.
        """
        self.num_leases = 0
        """The number of long-lived sockets and streams that are open."""
        self._listeners: list[OnEnded] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loaded_at = -RELOAD_INTERVAL
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether no key is needed, because no key was ever made.

        If a store had keys and has none now, the balancer admits no caller: the store may have
        been emptied by mistake.
        """
        return self.ring.is_open and not self._had_keys

    def issues(self) -> tuple[Issue, ...]:
        """The issues of the keys, for operators."""
        if not self._is_bereft:
            return ()
        return (Issue(code="keys_missing", message=BEREFT, hint=BEREFT_HINT),)

    @property
    def _is_bereft(self) -> bool:
        is_empty = all(key is self._fixed for key in self.ring.records())
        return self._had_keys and is_empty

    def listen(self, on_ended: OnEnded) -> None:
        """Call `on_ended` with each holder whose key was revoked or replaced, or has expired."""
        self._listeners.append(on_ended)

    # ---- callers come

    async def admitted(self, keys: Sequence[str]) -> Identity | None:
        """Return the holder of one of the `keys` that a caller sent; `None` if no key is needed.

        Another program may have made an unknown key, so the store is read, at most once per
        `RELOAD_INTERVAL`. Raises `Unauthorized`.
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
        """Return the same as `admitted`, without reading the store."""
        if self.is_open:
            return None
        if not keys:
            raise Unauthorized(NEEDED, kind="no_key")
        error = Unauthorized(UNKNOWN, kind="unknown_key")
        for key in keys:
            try:
                return self.ring.identify(key, self._clock())
            except Unauthorized as refusal:
                error = refusal
        raise error

    def holder(self, name: str, digest: str, *, session: str = "") -> Identity | None:
        """Return the holder of the key with this name and digest, if the key is still valid.

        `session`: the session of the dashboard through which the holder came.
        """
        key = self.ring.get(name)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        now = self._clock()
        if key.problem(now) is not None:
            return None
        self.ring.used(key.identity, now)
        return replace(key.identity, session=session)

    def holder_of(self, owner: str) -> Identity | None:
        """Return the holder that `owner` names, if the key is still valid."""
        now = self._clock()
        valid = (key.identity for key in self.ring.records() if key.problem(now) is None)
        return next((holder for holder in valid if holder.owner == owner), None)

    @contextmanager
    def lease(self, holder: Identity | None, on_end: OnEnd) -> Iterator[None]:
        """Return a context like that of `watch`, for a long connection.

        A caller that needed no key may stay connected after the first key is made.
        """
        if holder is None:
            yield
            return
        self.num_leases += 1
        try:
            with self.watch(holder, on_end):
                yield
        finally:
            self.num_leases -= 1

    def watch(self, holder: Identity | None, on_end: OnEnd) -> AbstractContextManager[None]:
        """Return a context in which `on_end` is called once if the permission of `holder` ends.

        `on_end` must not raise.

        If the key has ended already, `on_end` is called at once. A `holder` of `None` is a caller
        that needed no key; its permission ends with the first key.
        """
        return _Watch(self, holder, on_end)

    def begin_watch(self, watch: _Watch, holder: Identity | None) -> None:
        """Begin a watch; see `watch`."""
        for name in watch.names:
            if name:
                self._watches.setdefault(name, {})[watch] = None
        if (error := self._lost(holder)) is not None:
            self._end_watch(watch, error)

    def end_watch(self, watch: _Watch) -> None:
        """End a watch, even if its key has ended already."""
        for name in watch.names:
            if (others := self._watches.get(name)) is not None:
                others.pop(watch, None)
                if not others:
                    del self._watches[name]

    def end_session(self, session: str, why: str) -> None:
        """End a session of the dashboard, and all connections that were opened through it."""
        self._tell(session, Unauthorized(why))

    # ---- keys change

    def put(self, key: AccessKey) -> None:
        """Add or replace a key."""
        self._had_keys = True
        self._end(self.ring.put(key, self._clock()))

    def forget(self, name: str) -> None:
        """Remove a key."""
        self._end(self.ring.forget(name, self._clock()))

    def replace(self, keys: Iterable[AccessKey]) -> None:
        """Replace the known keys with the keys in the store."""
        self._end(self._know(keys))

    def fix(self, key: AccessKey) -> None:
        """Replace the key that is in no store."""
        stored = [each for each in self.ring.records() if each is not self._fixed]
        self._fixed = key
        self.replace(stored)

    def start(self) -> None:
        """Begin to watch for expiring keys; needs the event loop."""
        self._end(self.ring.due(self._clock()))

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- inside

    def _know(self, keys: Iterable[AccessKey]) -> list[Identity]:
        """Replace the known keys with the keys in the store.

        Returns the holders whose key is not among them, or has expired.
        """
        keys, was_bereft = list(keys), self._was_bereft
        self._had_keys = self._had_keys or bool(keys)
        lost = self.ring.replace(self._with_fixed(keys), self._clock())
        self._was_bereft = self._is_bereft
        if self._was_bereft and not was_bereft:
            logger.error("%s; %s", BEREFT, BEREFT_HINT)
        return lost

    def _with_fixed(self, keys: Iterable[AccessKey]) -> list[AccessKey]:
        """Return the keys with the fixed key, unless the store has the fixed key too."""
        keys = list(keys)
        if self._fixed is None or any(key.digest == self._fixed.digest for key in keys):
            return keys
        return [*keys, self._fixed]

    def _end(self, holders: Iterable[Identity]) -> None:
        for holder in holders:
            error = self._reason(holder)
            logger.info("%s: its open requests and connections are closed", error.message)
            for listener in self._listeners:
                listener(holder, error)
            self._tell(holder.digest, error)
        if not self.is_open:
            self._tell(NOBODY, Unauthorized(NEEDED))
        self._arm()

    def _tell(self, name: str, error: Unauthorized) -> None:
        for watch in list(self._watches.get(name, ())):
            self._end_watch(watch, error)

    def _end_watch(self, watch: _Watch, error: Unauthorized) -> None:
        self.end_watch(watch)
        watch.on_end(error)

    def _lost(self, holder: Identity | None) -> Unauthorized | None:
        """Return why the permission of `holder` has ended; `None` if it has not."""
        if holder is None:
            return None if self.is_open else Unauthorized(NEEDED)
        return None if self.ring.holds(holder) else self._reason(holder)

    def _reason(self, holder: Identity) -> Unauthorized:
        key = self.ring.get(holder.name)
        problem = None if key is None else key.problem(self._clock())
        return Unauthorized(problem or f"the key {holder.name!r} was replaced by a new key")

    def _arm(self) -> None:
        self.stop()
        deadline = self.ring.next_deadline()
        if deadline is not None:
            pause = min(max(deadline - self._clock(), 0.0), LONGEST_TIMER)
            self._timer = asyncio.get_running_loop().call_later(pause, self.start)

    async def _reload(self, keys: Sequence[str]) -> bool:
        """Read the store again if one of `keys` looks like a key. Returns whether the store was
        read.
        """
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
            logger.warning(
                "the balancer could not read the access keys from the store and uses those "
                "that it knows: %s",
                error,
            )
        finally:
            self._loading = None
