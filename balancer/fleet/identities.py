"""Whose an agent id is: that of the process, or of the key, that said it first.

An agent draws its id when it starts, and says it each time it dials. Other agents can read it, so
the id alone proves nothing. With `Welcome` an agent gets a secret, which it shows when it dials
again: then it is the same process. Where agents have keys, the same key is as good.

An id stays claimed for a while after its last link has gone, so that an agent whose connection was
cut has it when it is back, with the requests at once that it had earned. Pure: secrets are derived
from one that the balancer draws at its start.

Invariant: at most `MAX_GONE` ids are claimed by agents that are not here.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest

from ...shared.inference import AgentId
from ...shared.messages import Hello
from ..access.identity import Identity
from .circuit_breaker import CircuitBreaker
from .decisions import LinkId

MAX_GONE = 4096
"""Agents that have gone whose ids are claimed; the oldest is forgotten first."""

REMEMBERED = 60.0
"""Seconds for which the id of an agent that has gone is claimed."""


@dataclass(slots=True, eq=False)
class Owner:
    """`key` names the owner's key. The agent has the secret for sure (`is_known`) once it spoke."""

    secret: str = field(repr=False)
    key: str | None
    breaker: CircuitBreaker
    is_known: bool = False


class Identities:
    """Ask `refusal` of who dials; then call `joined`, and `left` when its last link is gone."""

    def __init__(self, secret: bytes, first_slots: int) -> None:
        self._secret = secret
        self._first_slots = first_slots
        self._owners: dict[AgentId, Owner] = {}
        self._gone: OrderedDict[AgentId, float] = OrderedDict()
        """Until when ids of agents that have gone are claimed."""

    def refusal(self, hello: Hello, holder: Identity | None, now: float) -> str | None:
        """Why this id is not for who says it; `None` if it is."""
        owner = self._owners.get(hello.agent_id)
        if owner is None or self._is_owner(owner, hello, holder):
            return None
        gone_until = self._gone.get(hello.agent_id)
        if gone_until is not None and now >= gone_until:
            return None
        if _key(holder) != owner.key:
            return "this agent id belongs to an agent with another key"
        if gone_until is None:
            return "an agent with this id is connected, and is another process than this one"
        if owner.is_known:
            return "an agent with this id was connected, and was another process than this one"
        return None

    def joined(self, link: LinkId, hello: Hello, holder: Identity | None) -> Owner:
        """One that was not refused says this id from now on, on a link of its own."""
        self._gone.pop(hello.agent_id, None)
        owner = self._owners.get(hello.agent_id)
        if owner is None or not self._is_owner(owner, hello, holder):
            secret = self._draw(link, hello.agent_id)
            owner = Owner(secret, _key(holder), CircuitBreaker(self._first_slots))
            self._owners[hello.agent_id] = owner
        owner.key = _key(holder)
        return owner

    def heard(self, id: AgentId) -> None:
        """Something came from an agent after it was let in."""
        self._owners[id].is_known = True

    def left(self, id: AgentId, now: float) -> None:
        """The last link of an agent is gone."""
        self._gone[id] = now + REMEMBERED
        if len(self._gone) > MAX_GONE:
            oldest, _ = self._gone.popitem(last=False)
            del self._owners[oldest]

    def _is_owner(self, owner: Owner, hello: Hello, holder: Identity | None) -> bool:
        """Whether it is the same process, or has the same key."""
        shown = (hello.secret or "").encode("utf-8", "surrogatepass")
        if compare_digest(shown, owner.secret.encode()):
            return True
        return holder is not None and _key(holder) == owner.key

    def _draw(self, link: LinkId, id: AgentId) -> str:
        """One for each owner: a link is never given twice."""
        about = f"{link} {id}".encode("utf-8", "surrogatepass")
        return blake2b(about, key=self._secret, digest_size=32, person=b"agent").hexdigest()

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if len(self._gone) > MAX_GONE or not self._gone.keys() <= self._owners.keys():
            raise RuntimeError("too many ids are claimed, or one without an owner is gone")


def _key(holder: Identity | None) -> str | None:
    """What tells the holders of keys apart, also after a key was replaced."""
    return None if holder is None else holder.owner or holder.name
