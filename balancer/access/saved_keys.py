"""Keys as the store has them."""

from pydantic import TypeAdapter
from pydantic_core import to_json

from ...shared.validation import parse_json
from ..store.records import SavedKey
from .access_key import AccessKey
from .identity import CallerLimits, Role

_LIMITS: TypeAdapter[CallerLimits] = TypeAdapter(CallerLimits)
_LABELS: TypeAdapter[dict[str, str] | None] = TypeAdapter(dict[str, str] | None)
_ROLE: TypeAdapter[Role] = TypeAdapter(Role)


def saved(key: AccessKey) -> SavedKey:
    """`key` as it is saved."""
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
    """The key that was saved. Raises `InvalidRequest` where this version cannot read it."""
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
