"""Permissions that routes need, and that roles have."""

from collections.abc import Mapping
from enum import Enum

from ....shared.errors import Forbidden
from ...access.identity import Identity, Role


class Needs(Enum):
    """A permission that a route needs."""

    NOTHING = "no key"
    ANY = "any key but an agent's"
    """The permission of routes that say how to use a port."""
    CALL = "calling models"
    FIRST_FRAME = "calling models; the key may come in the first message"
    LIST = "seeing which models there are"
    VIEW = "seeing the fleet"
    OPERATE = "draining, cancelling, reloading"
    ADMINISTER = "changing the desired state and keys"
    JOIN = "serving as an agent"


_CALLERS: frozenset[Role] = frozenset({"inference", "operator", "admin"})
_VIEWERS: frozenset[Role] = frozenset({"viewer", "operator", "admin"})

ROLES: Mapping[Needs, frozenset[Role]] = {
    Needs.ANY: _CALLERS | _VIEWERS,
    Needs.CALL: _CALLERS,
    Needs.FIRST_FRAME: _CALLERS,
    Needs.LIST: _CALLERS | _VIEWERS,
    Needs.VIEW: _VIEWERS,
    Needs.OPERATE: frozenset({"operator", "admin"}),
    Needs.ADMINISTER: frozenset({"admin"}),
    Needs.JOIN: frozenset({"agent"}),
}
"""Operators and admins may call models, to try what they have changed."""

Table = Mapping[tuple[str, str], Needs]
"""By method and path, the path without patterns. `HEAD` is as `GET`. See `api.route`."""


def needs_of(table: Table, method: str, path: str) -> Needs | None:
    """Return the permission that the route needs; `None` if `table` does not list the route."""
    return table.get(("GET" if method == "HEAD" else method, path))


def check_role(holder: Identity, needs: Needs | None) -> None:
    """Check that the holder's role has this permission. Raises `Forbidden` if not."""
    if needs is None or not may(holder.role, needs):
        why = "nobody may use this" if needs is None else f"this needs {needs.value}"
        raise Forbidden(f"the key {holder.name!r} has the role {holder.role}; {why}", kind="role")


def may(role: Role, needs: Needs) -> bool:
    """Whether a key of this role has the permission."""
    return needs is Needs.NOTHING or role in ROLES[needs]
