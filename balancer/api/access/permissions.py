"""What each role may: one table for every route of both ports.

A route without a row is refused to everybody; a test fails for it.
"""

from collections.abc import Mapping
from enum import Enum

from ....shared.errors import Forbidden
from ...access.identity import Identity, Role


class Needs(Enum):
    """What a route needs."""

    NOTHING = "no key"
    ANY = "any key but an agent's"
    """What says how to use a port."""
    CALL = "calling models"
    FIRST_FRAME = "calling models; the key may come in the first message"
    LIST = "seeing which models there are"
    VIEW = "seeing the fleet"
    OPERATE = "draining, cancelling, reloading"
    ADMINISTER = "changing wishes and keys"
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
"""By method and path, the path as it is declared. `HEAD` is as `GET`."""

INFERENCE: Table = {
    ("GET", "/health"): Needs.NOTHING,
    ("GET", "/ready"): Needs.NOTHING,
    ("GET", "/openapi.json"): Needs.ANY,
    ("GET", "/metrics"): Needs.VIEW,
    ("POST", "/api/v1/generate"): Needs.CALL,
    ("POST", "/api/v1/generate_batch"): Needs.CALL,
    ("POST", "/api/v1/embed"): Needs.CALL,
    ("POST", "/api/v1/tokenize"): Needs.CALL,
    ("POST", "/api/v1/detokenize"): Needs.CALL,
    ("POST", "/api/v1/count_tokens"): Needs.CALL,
    ("GET", "/api/v1/socket"): Needs.FIRST_FRAME,
    ("GET", "/v1/models"): Needs.LIST,
    ("GET", "/v1/models/{name}"): Needs.LIST,
    ("POST", "/v1/chat/completions"): Needs.CALL,
    ("POST", "/v1/completions"): Needs.CALL,
    ("POST", "/v1/embeddings"): Needs.CALL,
    ("POST", "/v1/rerank"): Needs.CALL,
    ("POST", "/tokenize"): Needs.CALL,
    ("POST", "/detokenize"): Needs.CALL,
    ("GET", "/tokenizer_info"): Needs.CALL,
    ("POST", "/v1/responses"): Needs.CALL,
    ("POST", "/v1/responses/input_tokens"): Needs.CALL,
    ("GET", "/v1/responses/{id}"): Needs.CALL,
    ("DELETE", "/v1/responses/{id}"): Needs.CALL,
    ("GET", "/v1/responses/{id}/input_items"): Needs.CALL,
    ("POST", "/v1/responses/{id}/cancel"): Needs.CALL,
    ("POST", "/v1/files"): Needs.CALL,
    ("GET", "/v1/files"): Needs.CALL,
    ("GET", "/v1/files/{id}"): Needs.CALL,
    ("DELETE", "/v1/files/{id}"): Needs.CALL,
    ("GET", "/v1/files/{id}/content"): Needs.CALL,
    ("POST", "/v1/batches"): Needs.CALL,
    ("GET", "/v1/batches"): Needs.CALL,
    ("GET", "/v1/batches/{id}"): Needs.CALL,
    ("POST", "/v1/batches/{id}/cancel"): Needs.CALL,
    ("POST", "/v1/messages"): Needs.CALL,
    ("POST", "/v1/messages/count_tokens"): Needs.CALL,
    ("GET", "/"): Needs.ANY,
    ("GET", "/api/version"): Needs.ANY,
    ("GET", "/api/tags"): Needs.LIST,
    ("GET", "/api/ps"): Needs.LIST,
    ("POST", "/api/show"): Needs.LIST,
    ("POST", "/api/chat"): Needs.CALL,
    ("POST", "/api/generate"): Needs.CALL,
    ("POST", "/api/embed"): Needs.CALL,
    ("POST", "/api/embeddings"): Needs.CALL,
}

MANAGEMENT: Table = {
    ("GET", "/health"): Needs.NOTHING,
    ("GET", "/"): Needs.NOTHING,
    ("GET", "/dashboard/{name}"): Needs.NOTHING,
    ("GET", "/api/v1/session"): Needs.NOTHING,
    ("POST", "/api/v1/session"): Needs.NOTHING,
    ("DELETE", "/api/v1/session"): Needs.NOTHING,
    ("GET", "/openapi.json"): Needs.ANY,
    ("GET", "/metrics"): Needs.VIEW,
    ("GET", "/api/v1/about"): Needs.ANY,
    ("GET", "/api/v1/balancers"): Needs.VIEW,
    ("GET", "/api/v1/agents"): Needs.VIEW,
    ("GET", "/api/v1/agents/{id}"): Needs.VIEW,
    ("GET", "/api/v1/agents/{id}/log"): Needs.VIEW,
    ("GET", "/api/v1/agents/{id}/log/events"): Needs.VIEW,
    ("GET", "/api/v1/requests"): Needs.VIEW,
    ("GET", "/api/v1/requests/{id}"): Needs.VIEW,
    ("GET", "/api/v1/events"): Needs.VIEW,
    ("GET", "/api/v1/history"): Needs.VIEW,
    ("GET", "/api/v1/usage"): Needs.VIEW,
    ("GET", "/api/v1/models"): Needs.VIEW,
    ("GET", "/api/v1/desired-state"): Needs.VIEW,
    ("PUT", "/api/v1/desired-state"): Needs.ADMINISTER,
    ("DELETE", "/api/v1/requests/{id}"): Needs.OPERATE,
    ("POST", "/api/v1/agents/{id}/drain"): Needs.OPERATE,
    ("POST", "/api/v1/agents/{id}/resume"): Needs.OPERATE,
    ("POST", "/api/v1/agents/{id}/reload"): Needs.OPERATE,
    ("GET", "/api/v1/batches"): Needs.VIEW,
    ("POST", "/api/v1/batches/{id}/cancel"): Needs.OPERATE,
    ("GET", "/api/v1/keys"): Needs.ADMINISTER,
    ("POST", "/api/v1/keys"): Needs.ADMINISTER,
    ("DELETE", "/api/v1/keys/{name}"): Needs.ADMINISTER,
    ("POST", "/api/v1/keys/{name}/rotate"): Needs.ADMINISTER,
    ("GET", "/api/v1/agent-socket"): Needs.JOIN,
    ("POST", "/api/v1/generate"): Needs.CALL,
}


def needs_of(table: Table, method: str, path: str) -> Needs | None:
    """What the route needs; `None` where it has no row."""
    return table.get(("GET" if method == "HEAD" else method, path))


def check_role(holder: Identity, needs: Needs | None) -> None:
    """Raises `Forbidden` where the holder's role does not open what needs this."""
    if needs is None or not may(holder.role, needs):
        wanted = "nobody may use this" if needs is None else f"this needs {needs.value}"
        raise Forbidden(f"the key {holder.name!r} has the role {holder.role}; {wanted}")


def may(role: Role, needs: Needs) -> bool:
    """Whether a key of this role opens what needs this."""
    return needs is Needs.NOTHING or role in ROLES[needs]
