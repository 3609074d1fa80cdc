"""The known keys, in memory: the holder of each, and when the next key expires.

Invariants: a name has one key, and a digest belongs to one name. There are at most `MAX_KEYS`
keys. `holders` are the holders whose key was valid at the last check of expiries. Uses are
recorded for known keys only.
"""

import hmac
from collections.abc import Iterable

from ...shared.errors import Unauthorized
from .access_key import AccessKey, digest_of
from .identity import Identity

MAX_KEYS = 1000
"""Maximum keys, including revoked and expired ones, which are forgotten to make room."""

UNKNOWN = "the access key is not known here"


class Keyring:
    """The known keys. `now` is in seconds since 1970."""

    def __init__(self, keys: Iterable[AccessKey] = (), *, now: float = 0.0) -> None:
        self._by_name: dict[str, AccessKey] = {}
        self._by_digest: dict[str, AccessKey] = {}
        self._holders: dict[str, Identity] = {}
        self._used_at: dict[str, float] = {}
        self.replace(keys, now)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def num_valid(self) -> int:
        """The number of keys that were valid at the last check."""
        return len(self._holders)

    @property
    def is_open(self) -> bool:
        """Whether no key was ever made, so that no key is needed. A revoked key still counts."""
        return not self._by_name

    def identify(self, key: str, now: float) -> Identity:
        """Return the holder of `key`. Raises `Unauthorized`."""
        digest = digest_of(key)
        found = self._by_digest.get(digest)
        # The look-up found a digest, not a key: its timing tells nothing of how to make one. The
        # comparison in constant time costs nothing and does not depend on that argument.
        if found is None or not hmac.compare_digest(found.digest, digest):
            raise Unauthorized(UNKNOWN, kind="unknown_key")
        if (problem := found.problem(now)) is not None:
            raise Unauthorized(problem, kind="ended_key")
        identity = found.identity
        self._used_at[identity.owner] = now
        return identity

    def used(self, holder: Identity, now: float) -> None:
        """Record that a key was used without being sent, such as by a session."""
        self._used_at[holder.owner] = now

    def used_at(self, key: AccessKey) -> float | None:
        """Return when a key was last used since the keyring was made; `None` if it was not."""
        return self._used_at.get(key.identity.owner)

    def get(self, name: str) -> AccessKey | None:
        """Return the key with this name, valid or not."""
        return self._by_name.get(name)

    def records(self) -> list[AccessKey]:
        """Return all keys, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def put(self, key: AccessKey, now: float) -> list[Identity]:
        """Add or change a key. Returns the holders whose keys have ended or expired."""
        return self.replace([*(each for each in self.records() if each.name != key.name), key], now)

    def forget(self, name: str, now: float) -> list[Identity]:
        """Forget a key. Returns the holders whose keys have ended or expired."""
        return self.replace([each for each in self.records() if each.name != name], now)

    def replace(self, keys: Iterable[AccessKey], now: float) -> list[Identity]:
        """Replace all keys. Returns the holders whose keys have ended or expired."""
        self._by_name = {key.name: key for key in keys}
        self._by_digest = {key.digest: key for key in self._by_name.values()}
        owners = {key.identity.owner for key in self._by_name.values()}
        self._used_at = {owner: at for owner, at in self._used_at.items() if owner in owners}
        return self.due(now)

    def due(self, now: float) -> list[Identity]:
        """Return the holders whose keys have ended, or changed role or limits, since the last
        check.
        """
        before = self._holders
        valid = (key for key in self._by_name.values() if key.problem(now) is None)
        self._holders = {key.digest: key.identity for key in valid}
        return [holder for holder in before.values() if not self.holds(holder)]

    def holds(self, holder: Identity) -> bool:
        """Return whether the key of `holder` was valid at the last check."""
        return self._holders.get(holder.digest) == holder

    def next_deadline(self) -> float | None:
        """Return the time of the next expiry, at which to call `due`; `None` if no key expires."""
        expiries = (self._by_digest[digest].expires_at for digest in self._holders)
        return min((each for each in expiries if each is not None), default=None)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if len(self._by_digest) != len(self._by_name):
            raise RuntimeError("two names have one digest")
        if not self._holders.keys() <= self._by_digest.keys():
            raise RuntimeError("somebody holds an unknown key")
        if not self._used_at.keys() <= {key.identity.owner for key in self._by_name.values()}:
            raise RuntimeError("an unknown key was used")
