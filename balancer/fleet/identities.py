"""Decides who owns each agent id: the process or the access key that used the id first.

An agent draws its id when it starts, and sends the id with each connection. The balancer's
`Welcome` contains a secret. An agent that shows this secret when it connects again is the same
process. An agent with the same access key needs no secret.

If agents have keys, the balancer knows each agent by an id computed from the key and the sent id
(`known_as`). So agents with different keys may send the same id, and neither replaces the other.
An agent that sends the computed id of another key's agent is refused.

An id stays claimed for a while after its last connection was lost, so that the agent keeps its
circuit breaker. This module is pure: secrets are computed from one secret that the balancer draws
at its start.

Invariant: at most `MAX_GONE` ids are claimed by absent agents.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from hmac import compare_digest

from ...shared.inference import AgentId
from ...shared.messages import Hello
from ..access.identity import Identity
from .circuit_breaker import CircuitBreaker
from .decisions import LinkId

OTHERS_KEY = "an agent with another access key already uses this agent id"

MAX_GONE = 4096
"""The maximum absent agents whose ids are claimed; the index forgets the oldest first."""

REMEMBERED = 60.0
"""The seconds for which the id of an absent agent stays claimed."""


@dataclass(slots=True, eq=False)
class IdentityOwner:
    """The owner of an agent id.

    `key` identifies its present access key. `first_key` is its key when it first sent the id
    `said`. `is_known` is true after a message from the agent, because the agent then has the
    `secret`.
    """

    secret: str = field(repr=False)
    key: str | None
    first_key: str | None
    said: AgentId
    breaker: CircuitBreaker
    is_known: bool = False


class Identities:
    """The owners of all agent ids.

    Call `refusal` for a new connection, then `joined`, and `left` after its last connection was
    lost.
    """

    def __init__(self, secret: bytes, first_slots: int) -> None:
        self._secret = secret
        self._first_slots = first_slots
        self._owners: dict[AgentId, IdentityOwner] = {}
        """The owners by the computed ids of their agents."""
        self._by_proof: dict[bytes, IdentityOwner] = {}
        self._gone: OrderedDict[AgentId, float] = OrderedDict()
        """The times until which the ids of absent agents stay claimed."""

    def known_as(self, hello: Hello, holder: Identity | None) -> Hello:
        """Return `hello` with the computed ids of the agent and its host."""
        owner = self._by_proof.get(_proof(hello.secret))
        is_back = owner is not None and owner.said == hello.agent_id
        key = owner.first_key if owner is not None and is_back else key_of(holder)
        if key is None:
            return hello
        host = None if hello.host is None else _known(key, hello.host)
        return replace(hello, agent_id=_known(key, hello.agent_id), host=host)

    def refusal(self, hello: Hello, holder: Identity | None, now: float) -> str | None:
        """Return why an agent may not use the id that it sent; `None` if it may."""
        known = self.known_as(hello, holder).agent_id
        if known != hello.agent_id and self._is_anothers(hello.agent_id, holder, now):
            return OTHERS_KEY
        owner = self._owners.get(known)
        if owner is None or self._is_owner(owner, hello, holder):
            return None
        gone_until = self._gone.get(known)
        if gone_until is not None and now >= gone_until:
            return None
        if key_of(holder) != owner.key:
            return OTHERS_KEY
        if gone_until is None:
            return "another process with this agent id is connected"
        if owner.is_known:
            return "another process with this agent id was connected a short time ago"
        return None

    def _is_anothers(self, id: AgentId, holder: Identity | None, now: float) -> bool:
        """Return whether the id `id` belongs to an agent with another key."""
        owner, gone_until = self._owners.get(id), self._gone.get(id)
        if owner is None or owner.key in (None, key_of(holder)):
            return False
        return gone_until is None or now < gone_until

    def joined(self, link: LinkId, hello: Hello, holder: Identity | None) -> IdentityOwner:
        """Record the agent of a new connection as the owner of its id."""
        known = self.known_as(hello, holder).agent_id
        self._gone.pop(known, None)
        owner, key = self._owners.get(known), key_of(holder)
        if owner is None or not self._is_owner(owner, hello, holder):
            self._forget(known)
            secret = self._draw(link, known)
            owner = IdentityOwner(
                secret, key, key, hello.agent_id, CircuitBreaker(self._first_slots)
            )
            self._owners[known] = self._by_proof[_proof(secret)] = owner
        owner.key = key
        return owner

    def heard(self, id: AgentId) -> None:
        """Record that the agent has sent a message after its hello."""
        self._owners[id].is_known = True

    def left(self, id: AgentId, now: float) -> None:
        """Record that the last connection of an agent was lost."""
        self._gone[id] = now + REMEMBERED
        if len(self._gone) > MAX_GONE:
            oldest, _ = self._gone.popitem(last=False)
            self._forget(oldest)

    def _forget(self, id: AgentId) -> None:
        if (owner := self._owners.pop(id, None)) is not None:
            del self._by_proof[_proof(owner.secret)]

    def _is_owner(self, owner: IdentityOwner, hello: Hello, holder: Identity | None) -> bool:
        """Return whether the agent of `hello` is the process of `owner`, or has the same key."""
        shown = (hello.secret or "").encode("utf-8", "surrogatepass")
        if compare_digest(shown, owner.secret.encode()):
            return True
        return holder is not None and key_of(holder) == owner.key

    def _draw(self, link: LinkId, id: AgentId) -> str:
        """Return a new secret. No two secrets are equal, because link numbers are never reused."""
        about = f"{link} {id}".encode("utf-8", "surrogatepass")
        return blake2b(about, key=self._secret, digest_size=32, person=b"agent").hexdigest()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if len(self._gone) > MAX_GONE or not self._gone.keys() <= self._owners.keys():
            raise RuntimeError("too many ids are claimed, or one without an owner is gone")
        if len(self._by_proof) != len(self._owners):
            raise RuntimeError("an owner cannot prove itself")


def _proof(secret: str | None) -> bytes:
    """Return a key for lookups by secret, whose timing reveals nothing about the secret."""
    return blake2b((secret or "").encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _known(key: str, said: AgentId) -> AgentId:
    about = f"{key}\0{said}".encode("utf-8", "surrogatepass")
    return AgentId(blake2b(about, digest_size=16, person=b"known as").hexdigest())


def key_of(holder: Identity | None) -> str | None:
    """Return a value that identifies the holder of a key, even after its key was replaced."""
    return None if holder is None else holder.owner or holder.name
