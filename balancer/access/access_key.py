"""The form of an access key, and its stored record.

A key is `ark_` and 32 random bytes. It is stored as its SHA-256 only. Slow hashes protect
passwords, which can be guessed. 256 random bits cannot be guessed, so a fast hash is enough, and
each request can afford it.
"""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .identity import NO_LIMITS, CallerLimits, Identity, Role

PREFIX = "ark_"
NUM_RANDOM_BYTES = 32
KEY_PATTERN = r"ark_[A-Za-z0-9_-]{43}"

_KEY = re.compile(KEY_PATTERN, re.ASCII)

FILE_KEY = "admin-key-file"
"""Name of the key that `--admin-key-file` gives; no other key may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key's record. Times are in seconds since 1970; `revision` counts its saved versions."""

    name: str
    digest: str = field(repr=False)
    role: Role
    limits: CallerLimits = NO_LIMITS
    labels: tuple[tuple[str, str], ...] | None = None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    revision: int = 1

    def problem(self, now: float) -> str | None:
        """Return why the key is no longer valid; `None` if it is valid."""
        if self.revoked_at is not None:
            return f"the key {self.name!r} was revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return f"the key {self.name!r} expired at {_written(self.expires_at)}"
        return None

    @property
    def identity(self) -> Identity:
        """Return the part of the key that the rest of the balancer may know."""
        return Identity(
            name=self.name,
            role=self.role,
            limits=self.limits,
            labels=self.labels,
            owner=f"{self.name}@{self.created_at:.6f}",
            digest=self.digest,
        )


def new_key(random_bytes: bytes) -> str:
    """Return the key made of `NUM_RANDOM_BYTES` random bytes."""
    if len(random_bytes) != NUM_RANDOM_BYTES:
        raise ValueError(f"a key takes {NUM_RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    return PREFIX + base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key."""
    return _KEY.fullmatch(text) is not None


def contains_key(text: str) -> bool:
    """Whether `text` contains a key."""
    return _KEY.search(text) is not None


def digest_of(key: str) -> str:
    """Return the stored form of a key: its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
