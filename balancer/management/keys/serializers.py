"""Keys as JSON: never their digests."""

from typing_extensions import TypedDict

from ....shared.inference import Count
from ...access.access_key import AccessKey
from ...access.identity import PriorityClass, Role


class Key(TypedDict):
    """A key without its secret. Times are seconds since 1970; a limit that is null is none.

    `models` and `labels`: null is any. `last_used_at`: when its holder last came in at this
    balancer; null where that was not since it started.
    """

    name: str
    role: Role
    is_valid: bool
    models: list[str] | None
    labels: dict[str, str] | None
    requests_per_minute: Count | None
    tokens_per_minute: Count | None
    max_concurrent: Count | None
    max_queued: Count | None
    max_tokens: Count | None
    priority: PriorityClass
    default_priority: PriorityClass | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    rotated_at: float | None
    last_used_at: float | None


class NewKey(Key):
    """`key` is told this once, and kept nowhere."""

    key: str


class Keys(TypedDict):
    """All keys by name, revoked and expired ones too."""

    keys: list[Key]


def key_json(key: AccessKey, now: float, used_at: float | None = None) -> Key:
    """The fields of a key; `now` and `used_at` in seconds since 1970."""
    limits = key.limits
    return Key(
        name=key.name,
        role=key.role,
        is_valid=key.problem(now) is None,
        models=None if limits.models is None else list(limits.models),
        labels=None if key.labels is None else dict(key.labels),
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        max_concurrent=limits.max_concurrent,
        max_queued=limits.max_queued,
        max_tokens=limits.max_tokens,
        priority=limits.priority,
        default_priority=limits.default_priority,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        rotated_at=key.rotated_at,
        last_used_at=used_at,
    )


def new_key_json(key: AccessKey, secret: str, now: float) -> NewKey:
    """The same, with the key itself."""
    return NewKey(**key_json(key, now), key=secret)
