"""What `/api/v1/keys` answers; the OpenAPI document is made of these types."""

from typing_extensions import TypedDict

from ....shared.inference import Count
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
