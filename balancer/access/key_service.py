"""Creates, revokes and rotates keys in the store, which decides conflicts.

Invariant: one change at a time. A change that has begun is completed, even if its caller leaves.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from ...shared.errors import Conflict, InvalidRequest, StoreUnavailable
from ...shared.strict import LAZY
from ...shared.validation import parse_json
from ..store.port import KeyConflict, StoreAway
from ..store.records import SavedKey
from ..store.store import Store
from .access_key import NUM_RANDOM_BYTES, AccessKey, digest_of, new_key
from .identity import CallerLimits, Role
from .key_spec import KeySpec, check_not_last, created, revoked, rotated, surplus
from .keyring import Keyring

logger = logging.getLogger(__name__)

SAVE_TIMEOUT = 5.0
"""Seconds after which a store that does not answer counts as away."""

RECONCILE_INTERVAL = 0.5
"""Seconds between two readings of the store's keys, which other programs may have changed."""

T = TypeVar("T")
Change = Callable[[], Coroutine[None, None, T]]


class KnownKeys(Protocol):
    """The part of `access.Access` that this service uses."""

    @property
    def ring(self) -> Keyring: ...

    def put(self, key: AccessKey) -> None: ...

    def forget(self, name: str) -> None: ...

    def replace(self, keys: Sequence[AccessKey]) -> None: ...


async def load_keys(store: Store) -> list[AccessKey]:
    """Read all keys of the store. Raises `StoreAway`, or `InvalidRequest` for an unreadable key."""
    return [restored(each) for each in await store.load_keys()]


Check = Callable[[], None]
"""Raises `Unauthorized` if the caller may no longer make changes, for example after the last
change.
"""


def _anybody() -> None:
    """Check nothing, because the caller needs no key."""


class KeyService:
    """Changes keys in the store.

    Every method raises `StoreUnavailable`, and then nothing has changed.
    """

    def __init__(
        self,
        known: KnownKeys,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._known = known
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        self._is_blind = False

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock()

    def records(self) -> list[AccessKey]:
        """Return all keys, by name."""
        return self._known.ring.records()

    def used_at(self, key: AccessKey) -> float | None:
        """Return when a key was last used since the balancer's start; `None` if it was not."""
        return self._known.ring.used_at(key)

    async def create(self, spec: KeySpec, check: Check = _anybody) -> tuple[AccessKey, str]:
        """Return the new key's record and the key itself, which is stored nowhere.

        Raises `Conflict`.
        """
        return await self._change(lambda: self._create(spec), check)

    async def revoke(
        self, name: str, check: Check = _anybody, *, may_be_last: bool = False
    ) -> AccessKey:
        """Revoke a key, which closes its requests and connections. Returns its record.

        Raises `NotFound`.

        Raises `Conflict` for the last key of an admin, unless it `may_be_last`.
        """
        return await self._change(lambda: self._revoke(name, may_be_last=may_be_last), check)

    async def rotate(self, name: str, check: Check = _anybody) -> tuple[AccessKey, str]:
        """Give a key a new secret; the old secret is revoked. Returns the record and the key.

        Raises `NotFound`.
        """
        return await self._change(lambda: self._rotate(name), check)

    async def follow(self) -> None:
        """Apply changes by other programs in the store, until cancelled.

        Readings alternate with changes made here, so that an older reading does not undo a change.
        """
        while True:
            await asyncio.sleep(RECONCILE_INTERVAL)
            await self.reconcile()

    async def reconcile(self) -> bool:
        """Read all keys of the store, and end the requests of removed keys.

        Returns whether the keys could be read.
        """
        try:
            async with self._turn, asyncio.timeout(SAVE_TIMEOUT):
                self._known.replace(await load_keys(self._store))
        except (StoreAway, TimeoutError, InvalidRequest) as error:
            if not self._is_blind:
                logger.warning(
                    "the balancer could not read changed access keys from the store and uses "
                    "those that it knows: %s",
                    error,
                )
            self._is_blind = True
        except (
            Exception
        ):  # the boundary of a reconciliation: the balancer goes on with the keys it knows
            if not self._is_blind:
                logger.exception(
                    "the balancer could not read changed access keys from the store and uses "
                    "those that it knows"
                )
            self._is_blind = True
        else:
            self._is_blind = False
        return not self._is_blind

    # ---- inside

    async def _create(self, spec: KeySpec) -> tuple[AccessKey, str]:
        key, now = self._new_key(), self._clock()
        record = created(self._known.ring, spec, digest_of(key), now)
        if (old := surplus(self._known.ring, spec.name, now)) is not None:
            await self._store.forget_key(old.name, old.revision)
            self._known.forget(old.name)
        await self._save(record)
        return record, key

    async def _revoke(self, name: str, *, may_be_last: bool) -> AccessKey:
        now = self._clock()
        if not may_be_last:
            check_not_last(self._known.ring, name, now)
        record = revoked(self._known.ring, name, now)
        await self._save(record)
        return record

    async def _rotate(self, name: str) -> tuple[AccessKey, str]:
        key = self._new_key()
        record = rotated(self._known.ring, name, digest_of(key), self._clock())
        await self._save(record)
        return record, key

    def _new_key(self) -> str:
        return new_key(self._random_bytes(NUM_RANDOM_BYTES))

    async def _save(self, record: AccessKey) -> None:
        await self._store.save_key(saved(record))
        self._known.put(record)

    async def _change(self, change: Change[T], check: Check) -> T:
        # Shielded: a client that leaves must not cut a change between the store and the keyring.
        task = asyncio.create_task(self._changed(change, check))
        self._changes.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._changes.discard(task)
        task.exception()  # so that asyncio does not complain if the client has gone

    async def _changed(self, change: Change[T], check: Check) -> T:
        try:
            async with self._turn, asyncio.timeout(SAVE_TIMEOUT):
                check()
                return await self._settled(change)
        except StoreAway as error:
            raise StoreUnavailable(f"the store is away: {error}") from error
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {SAVE_TIMEOUT:g} s") from error

    async def _settled(self, change: Change[T]) -> T:
        """Apply a change. If another balancer has changed the same key, read it again and retry
        once.
        """
        try:
            return await change()
        except KeyConflict:
            self._known.replace(await load_keys(self._store))
        try:
            return await change()
        except KeyConflict as error:
            raise Conflict("another change of this key is being made; try again") from error


# ---- keys as the store has them


_LIMITS: TypeAdapter[CallerLimits] = TypeAdapter(CallerLimits)
_LABELS: TypeAdapter[dict[str, str] | None] = TypeAdapter(dict[str, str] | None, config=LAZY)
_ROLE: TypeAdapter[Role] = TypeAdapter(Role, config=LAZY)


def saved(key: AccessKey) -> SavedKey:
    """Return `key` in its saved form."""
    return SavedKey(
        name=key.name,
        revision=key.revision,
        digest=key.digest,
        role=key.role,
        limits=_LIMITS.dump_json(key.limits, exclude_defaults=True).decode(),
        labels=to_json(None if key.labels is None else dict(key.labels)).decode(),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        rotated_at=key.rotated_at,
    )


def restored(saved: SavedKey) -> AccessKey:
    """Return the saved key. Raises `InvalidRequest` if this version cannot read it."""
    labels = parse_json(_LABELS, saved.labels)
    return AccessKey(
        name=saved.name,
        digest=saved.digest,
        role=parse_json(_ROLE, to_json(saved.role)),
        limits=parse_json(_LIMITS, saved.limits),
        labels=None if labels is None else tuple(sorted(labels.items())),
        created_at=saved.created_at,
        expires_at=saved.expires_at,
        revoked_at=saved.revoked_at,
        rotated_at=saved.rotated_at,
        revision=saved.revision,
    )
