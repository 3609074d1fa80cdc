"""Decides which agents may serve a request, by offers of agents and keys of queues."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ....shared.continuation import BY_TEXT
from ....shared.inference import GenerateRequest
from ....shared.inference.abilities import ABILITIES, Ability, needs_of
from ....shared.inference.prefix_peers import Peer
from ..decisions import LinkId
from ..routing.prefix_index import Home
from ..tally import Tally


class Engine(NamedTuple):
    """The agents with this model and fingerprint, which can continue each other's answers."""

    model: str
    fingerprint: str

    @property
    def is_by_text(self) -> bool:
        """Whether such agents continue from the text of the answer, not from its token ids."""
        return self.fingerprint.startswith(BY_TEXT)


class Able(NamedTuple):
    """The agents of a model with all these uncommon abilities (`shared.inference.abilities`)."""

    model: str | None
    needs: tuple[str, ...]


class ByText(NamedTuple):
    """The agents of a model that can continue an answer from its text.

    They also have the needed abilities. `origin` is the fingerprint of the engine that began the
    answer; an engine with another fingerprint has other weights and cannot continue it. `origin`
    is `None` if a server, or several agents, began the answer.
    """

    model: str
    needs: tuple[str, ...]
    origin: str | None


class Warm(NamedTuple):
    """The agent that has computed much of the prompt; the request waits for it for a while."""

    model: str | None
    link: LinkId


class Alone(NamedTuple):
    """The agents of `key` that run no other request; `model` is the model of `key`."""

    model: str | None
    key: str | Engine | Able | ByText | None


QueueKey = str | Engine | Able | ByText | Warm | Alone | None
"""The key of a queue: the agents that its requests wait for.

These are the agents of a model, some of them, or agents of any model. They may also be only the
agents with the needed abilities.
"""


def model_of(key: QueueKey) -> str | None:
    """Return the name of the model that requests under this key wait for.

    `None` stands for any model.
    """
    return key if key is None or isinstance(key, str) else key.model


def agents_of(key: QueueKey) -> QueueKey:
    """Return the key of the agents for requests under `key`, even if they run other requests."""
    return key.key if isinstance(key, Alone) else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An agent's offer to requests. An agent without a model gets no requests.

    - `cache_tokens`: the tokens that the agent's cache holds; an estimate until the agent reports
      it.
    - `able`: the agent's abilities that not all agents have.
    - `adapted`: the names of the model under each of its adapters.
    - `peer`: the address at which the agent lends prefixes to other agents.
    - `home`: the place whose cache outlives the agent.
    - `allowed`: the maximum requests that the agent may have at once (`circuit_breaker.py`).
    """

    model: str | None
    slots: int
    allowed: float = inf
    is_accepting: bool = True
    fingerprint: str | None = None
    cache_tokens: float = inf
    able: tuple[Able | ByText, ...] = ()
    adapted: tuple[str, ...] = ()
    peer: Peer | None = None
    home: Home | None = None

    @property
    def is_able(self) -> bool:
        """Whether the agent takes requests and has a slot, free or not."""
        return self.is_accepting and self.model is not None and self.slots > 0

    @property
    def keys(self) -> tuple[QueueKey, ...]:
        """The keys of the agent's queues: its model, its engine, any model, and its abilities."""
        if self.model is None:
            return ()
        if self.fingerprint is None:
            return (*self.names, *self.able)
        return (*self.names, Engine(self.model, self.fingerprint), *self.able)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The model names in requests that the agent takes.

        `None` stands for a request without a name.
        """
        return (None, self.model, *self.adapted)


NOTHING = Offer(model=None, slots=0)


def by_text_of(request: GenerateRequest, model: str, origin: str | None) -> ByText:
    """Return the key of the agents that can continue an answer of `model` from its text.

    See `ByText`.
    """
    needs = set(needs_of(request))
    if request.messages is not None:
        needs.add("continue_final_message")
    return ByText(request.model or model, tuple(sorted(needs)), origin)


Key = Able | ByText

MAX_UNUSED = 16
"""Maximum keys without requests that are kept for later requests."""


class UncommonNeeds:
    """The requests that not every agent can serve, and the keys under which they wait.

    An agent with its own engine has all abilities except reading pictures, which needs a
    projector. An agent that forwards reports the abilities of its server. If some agent lacks an
    ability, requests that need the ability wait under a key `Able`. Every agent with all abilities
    of the key serves it. As long as no agent lacks an ability, there are no such keys. Answers
    that continue from text use keys `ByText` in the same way.

    `lacked` has every ability that any agent was seen to lack; it only grows. Invariant: `keys`
    has the keys of all present requests, and at most `MAX_UNUSED` others.
    """

    def __init__(self) -> None:
        self.lacked: frozenset[Ability] = frozenset()
        self._keys: dict[Key, None] = {}
        self._used: Tally[Key] = Tally()

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def seen(self, abilities: frozenset[Ability]) -> bool:
        """Record the abilities of an agent.

        Returns whether the needs of requests have to be checked again.
        """
        before, self.lacked = self.lacked, self.lacked | (ABILITIES - abilities)
        return self.lacked != before

    def key_of(self, request: GenerateRequest) -> Able | None:
        """Return the key under which the request waits.

        Returns `None` if every agent of its model can serve it.
        """
        if not self.lacked:
            return None
        special = needs_of(request, self.lacked)
        return Able(request.model, tuple(sorted(special))) if special else None

    def keys_for(
        self,
        model: str | None,
        abilities: frozenset[Ability],
        goes_on_from: Callable[[str | None], bool] = lambda _: True,
    ) -> tuple[Key, ...]:
        """Return the keys that an agent of this model serves.

        `goes_on_from` decides about keys `ByText`.
        """
        return tuple(
            key
            for key in self._keys
            if key.model in (None, model)
            and abilities.issuperset(key.needs)
            and (isinstance(key, Able) or goes_on_from(key.origin))
        )

    def came(self, key: Key) -> bool:
        """Add a request that waits for `key`. Returns whether agents have to offer a new key."""
        self._used.add(key, 1)
        if key in self._keys:
            return False
        self._keys[key] = None
        return True

    def left(self, key: Key | None) -> None:
        """Remove a request that waited for `key` and has ended or has another key now."""
        if key is None:
            return
        self._used.add(key, -1)
        unused = [each for each in self._keys if each not in self._used]
        for each in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._keys[each]

    def check_integrity(self, keys: Iterable[Key | None]) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method.

        `keys` are the keys of all requests.
        """
        counts = Counter(key for key in keys if key is not None)
        used = counts.keys()
        if any(self._used[key] != counts[key] for key in (*self._used, *used)):
            raise RuntimeError("keys of requests are miscounted")
        if not used <= self._keys.keys() or len(self._keys) > len(used) + MAX_UNUSED:
            raise RuntimeError("keys without requests, or requests without theirs")
