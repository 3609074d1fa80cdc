"""Whose an agent id is: that of the process, or of the key, that said it first.

An agent draws its id when it starts, and says it each time it dials. With `Welcome` it gets a
secret, which it shows when it dials again: then it is the same process. If agents have keys, the
same key is as good.

Agents with keys are known under ids that follow from the key and the id that they say (`known_as`).
So agents with different keys that say the same id are different agents: neither takes the other's
place nor keeps it out, whoever comes first. An id under which an agent is known is refused to
agents with another key: no honest agent says it.

An id stays claimed for a while after its last link has gone, so that an agent whose connection was
cut has it when it is back, with the requests at once that it had earned. Pure: secrets are derived
from one that the balancer draws at its start.

Invariant: at most `MAX_GONE` ids are claimed by agents that are not here.
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

OTHERS_KEY = "this agent id belongs to an agent with another key"

MAX_GONE = 4096
"""Agents that have gone whose ids are claimed; the oldest is forgotten first."""

REMEMBERED = 60.0
"""Seconds for which the id of an agent that has gone is claimed."""


@dataclass(slots=True, eq=False)
class IdentityOwner:
    """`key` names the owner's key; under `first_key` it said the id `said` first.

    The agent has the secret for sure (`is_known`) once it spoke.
    """

    secret: str = field(repr=False)
    key: str | None
    first_key: str | None
    said: AgentId
    breaker: CircuitBreaker
    is_known: bool = False


class Identities:
    """Ask `refusal` of who dials; then call `joined`, and `left` when its last link is gone."""

    def __init__(self, secret: bytes, first_slots: int) -> None:
        self._secret = secret
        self._first_slots = first_slots
        self._owners: dict[AgentId, IdentityOwner] = {}
        """By the ids under which they are known."""
        self._by_proof: dict[bytes, IdentityOwner] = {}
        self._gone: OrderedDict[AgentId, float] = OrderedDict()
        """Until when ids of agents that have gone are claimed."""

    def known_as(self, hello: Hello, holder: Identity | None) -> Hello:
        """`hello` with the ids under which the agent is known, and its host."""
        owner = self._by_proof.get(_proof(hello.secret))
        is_back = owner is not None and owner.said == hello.agent_id
        key = owner.first_key if owner is not None and is_back else key_of(holder)
        if key is None:
            return hello
        host = None if hello.host is None else _known(key, hello.host)
        return replace(hello, agent_id=_known(key, hello.agent_id), host=host)

    def refusal(self, hello: Hello, holder: Identity | None, now: float) -> str | None:
        """Why the id that this one says is not for it; `None` if it is."""
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
            return "an agent with this id is connected, and is another process than this one"
        if owner.is_known:
            return "an agent with this id was connected, and was another process than this one"
        return None

    def _is_anothers(self, id: AgentId, holder: Identity | None, now: float) -> bool:
        """Whether this id belongs to an agent with another key."""
        owner, gone_until = self._owners.get(id), self._gone.get(id)
        if owner is None or owner.key in (None, key_of(holder)):
            return False
        return gone_until is None or now < gone_until

    def joined(self, link: LinkId, hello: Hello, holder: Identity | None) -> IdentityOwner:
        """One that was not refused says this id from now on, on a link of its own."""
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
        """Note a message of an agent after its hello."""
        self._owners[id].is_known = True

    def left(self, id: AgentId, now: float) -> None:
        """The last link of an agent is gone."""
        self._gone[id] = now + REMEMBERED
        if len(self._gone) > MAX_GONE:
            oldest, _ = self._gone.popitem(last=False)
            self._forget(oldest)

    def _forget(self, id: AgentId) -> None:
        if (owner := self._owners.pop(id, None)) is not None:
            del self._by_proof[_proof(owner.secret)]

    def _is_owner(self, owner: IdentityOwner, hello: Hello, holder: Identity | None) -> bool:
        """Whether the agent is the same process, or has the same key."""
        shown = (hello.secret or "").encode("utf-8", "surrogatepass")
        if compare_digest(shown, owner.secret.encode()):
            return True
        return holder is not None and key_of(holder) == owner.key

    def _draw(self, link: LinkId, id: AgentId) -> str:
        """One for each owner: a link is never given twice."""
        about = f"{link} {id}".encode("utf-8", "surrogatepass")
        return blake2b(about, key=self._secret, digest_size=32, person=b"agent").hexdigest()

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if len(self._gone) > MAX_GONE or not self._gone.keys() <= self._owners.keys():
            raise RuntimeError("too many ids are claimed, or one without an owner is gone")
        if len(self._by_proof) != len(self._owners):
            raise RuntimeError("an owner cannot prove itself")


def _proof(secret: str | None) -> bytes:
    """By what an owner is looked up: its timing tells nothing of the secret."""
    return blake2b((secret or "").encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _known(key: str, said: AgentId) -> AgentId:
    about = f"{key}\0{said}".encode("utf-8", "surrogatepass")
    return AgentId(blake2b(about, digest_size=16, person=b"known as").hexdigest())


def key_of(holder: Identity | None) -> str | None:
    """A value that tells the holders of keys apart, also after a key was replaced."""
    return None if holder is None else holder.owner or holder.name
