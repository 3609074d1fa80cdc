"""Keys for tests: each with a secret that follows from a number."""

from typing import Any

from arriero.balancer.access.access_key import AccessKey, digest_of, new_key
from arriero.balancer.access.identity import Role
from arriero.balancer.access.keyring import Keyring


def secret(number: int) -> str:
    """The key with this number."""
    return new_key(number.to_bytes(32))


def record(name: str, number: int, role: Role = "inference", **fields: Any) -> AccessKey:
    """What is kept of the key with this number."""
    return AccessKey(
        name=name, digest=digest_of(secret(number)), role=role, **{"created_at": 1.0} | fields
    )


def ring_of(*keys: AccessKey, now: float = 10.0) -> Keyring:
    """A keyring with these."""
    return Keyring(keys, now=now)
