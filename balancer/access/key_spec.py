"""An operator's specification of a key, and changes of keys."""

import re
from dataclasses import dataclass, fields, replace
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from ...shared.errors import Conflict, InvalidRequest, NotFound
from ...shared.inference import PRIORITY_CLASSES
from ...shared.labels import MAX_LABELS
from ...shared.quantities import parse_duration
from ...shared.strict import STRICT, at_most
from ...shared.validation import parse_json
from .access_key import FILE_KEY, AccessKey
from .identity import CallerLimits, Models, Positive, PriorityClass, Role
from .keyring import MAX_KEYS, Keyring

RESERVED = ("anonymous", "other", FILE_KEY)
"""Names that log and metrics use for other things, so no key may have them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def _name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(
            "must be 1 to 64 letters, digits and . _ - beginning with a letter or digit, and not "
            + " or ".join(RESERVED)
        )
    return name


def _expires(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, bool) or (seconds := parse_duration(value)) <= 0:
        raise ValueError("must be a duration of more than 0, such as 90d, 12h or 30m")
    return seconds


Text = Annotated[str, Field(max_length=256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """The body of `POST /api/v1/keys`. `expires` is in seconds from now.

    `models` are the models that the holder may use; for an agent's key, the models that the agent
    may serve. `priority` is the highest priority of the holder's requests, and `default_priority`
    is the priority of requests without a priority. `labels` are for agents' keys: the labels that
    an agent with this key may have.
    """

    __pydantic_config__ = STRICT
    name: Annotated[str, AfterValidator(_name)]
    role: Role
    expires: Annotated[float | None, BeforeValidator(_expires)] = None
    models: Models | None = None
    labels: Annotated[dict[Text, Text], at_most(MAX_LABELS)] | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_concurrent: Positive | None = None
    max_queued: Positive | None = None
    max_tokens: Positive | None = None
    priority: PriorityClass = "interactive"
    default_priority: PriorityClass | None = None

    @property
    def limits(self) -> CallerLimits:
        """The limits in the spec."""
        names = [each.name for each in fields(CallerLimits)]
        return CallerLimits(**{name: getattr(self, name) for name in names})


_SPEC: TypeAdapter[KeySpec] = TypeAdapter(KeySpec)


def parse_spec(body: str | bytes) -> KeySpec:
    """Parse the JSON `body`. Raises `InvalidRequest` that names the field."""
    return parse_json(_SPEC, body)


def created(ring: Keyring, spec: KeySpec, digest: str, now: float) -> AccessKey:
    """Return the key to add.

    Raises `Conflict`, or `InvalidRequest` if then no key could administer.
    """
    if spec.labels is not None and spec.role != "agent":
        raise InvalidRequest(
            "`labels`: only a key of the role agent can have labels", field="labels"
        )
    if _is_above(spec.default_priority, spec.priority):
        raise InvalidRequest(
            f"`default_priority`: {spec.default_priority} is above {spec.priority}, the highest "
            "that `priority` allows",
            field="default_priority",
        )
    if spec.role != "admin" and not any(key.role == "admin" for key in ring.records()):
        raise InvalidRequest(
            "`role`: the first key must have the role admin. Once a key exists, every call "
            "needs one, and only an admin can make further keys",
            field="role",
        )
    old = ring.get(spec.name)
    if old is not None and old.problem(now) is None:
        raise Conflict(
            f"the key {spec.name!r} exists already; rotate or revoke it, or choose another name",
            field="name",
        )
    return AccessKey(
        name=spec.name,
        digest=digest,
        role=spec.role,
        limits=spec.limits,
        labels=None if spec.labels is None else tuple(sorted(spec.labels.items())),
        created_at=now,
        expires_at=None if spec.expires is None else now + spec.expires,
        revision=1 if old is None else old.revision + 1,
    )


def _is_above(kind: PriorityClass | None, highest: PriorityClass) -> bool:
    rank = PRIORITY_CLASSES.index
    return kind is not None and rank(kind) > rank(highest)


def surplus(ring: Keyring, name: str, now: float) -> AccessKey | None:
    """Return the key to forget before `name` is added, if there are too many keys.

    Raises `Conflict`.
    """
    if len(ring) < MAX_KEYS or ring.get(name) is not None:
        return None
    over = [key for key in ring.records() if key.problem(now) is not None]
    if not over:
        raise Conflict(f"there are {MAX_KEYS} keys, which is the limit; revoke one first")
    return min(over, key=lambda key: key.revoked_at or key.expires_at or 0.0)


def revoked(ring: Keyring, name: str, now: float) -> AccessKey:
    """Return the key in its revoked form; a revoked key stays unchanged. Raises `NotFound`."""
    key = _known(ring, name)
    if key.revoked_at is not None:
        return key
    return replace(key, revoked_at=now, revision=key.revision + 1)


def check_not_last(ring: Keyring, name: str, now: float) -> None:
    """Raise `Conflict` if without this key no key could administer over the management port."""
    admins = [key for key in ring.records() if key.role == "admin" and key.problem(now) is None]
    if [key.name for key in admins] == [name]:
        raise Conflict(
            f"{name!r} is the last key of the role admin, and without it nobody can make "
            "keys over the management port. Make another admin key first, or give this key "
            "a new secret (rotate). You can still revoke it in the store (--state)"
        )


def rotated(ring: Keyring, name: str, digest: str, now: float) -> AccessKey:
    """Return the key with a new secret; the old one becomes invalid.

    Raises `NotFound`, `Conflict`.
    """
    key = _known(ring, name)
    if (problem := key.problem(now)) is not None:
        raise Conflict(f"{problem}; create the key again")
    return replace(key, digest=digest, rotated_at=now, revision=key.revision + 1)


def _known(ring: Keyring, name: str) -> AccessKey:
    key = ring.get(name)
    if key is None:
        raise NotFound(f"there is no key {name[:100]!r}")
    if name == FILE_KEY:
        raise Conflict(
            f"the key {name!r} comes from the balancer's --admin-key-file; change that "
            "file and restart the balancer"
        )
    return key
