"""Decides which agents may run a request, from the agents' offers and the keys of queues."""

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
    """The agents with one model and fingerprint. They can continue each other's answers."""

    model: str
    fingerprint: str

    @property
    def is_by_text(self) -> bool:
        """Whether these agents continue an answer from its text and not from its token ids."""
        return self.fingerprint.startswith(BY_TEXT)


class Able(NamedTuple):
    """The agents of a model with all these uncommon abilities (`shared.inference.abilities`)."""

    model: str | None
    needs: tuple[str, ...]


class ByText(NamedTuple):
    """The agents of a model that can continue an answer from its text.

    The agents also have the needed abilities. `origin` is the fingerprint of the engine that began
    the answer; engines with other weights cannot continue it. `origin` is `None` if a server or
    several agents began the answer.
    """

    model: str
    needs: tuple[str, ...]
    origin: str | None


class Warm(NamedTuple):
    """The agent with much of the prompt cached. The request waits for this agent for a while."""

    model: str | None
    link: LinkId


class Alone(NamedTuple):
    """The agents of `key` that run no other request. `model` is the model of `key`."""

    model: str | None
    key: str | Engine | Able | ByText | None


QueueKey = str | Engine | Able | ByText | Warm | Alone | None
"""The key of a queue, which stands for the agents that may take its requests.

These are all agents of a model, some agents of a model, or agents of any model.
"""


def model_of(key: QueueKey) -> str | None:
    """Return the model that requests in the queue `key` need, or `None` for any model."""
    return key if key is None or isinstance(key, str) else key.model


def agents_of(key: QueueKey) -> QueueKey:
    """Return the key of the same agents without the condition that they run no other request."""
    return key.key if isinstance(key, Alone) else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The offer of an agent to dispatch. An agent without a model gets no requests.

    - `cache_tokens`: the size of its cache in tokens; an estimate until the agent reports the
      size.
    - `able`: the uncommon abilities of the agent.
    - `adapted`: the names of the model with each of its adapters.
    - `peer`: how the agent lends prefixes to other agents.
    - `home`: identifies the disk cache that outlives the agent.
    - `allowed`: the maximum number of requests at once (`circuit_breaker.py`).
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
        """Whether the agent takes requests and has at least one slot, free or taken."""
        return self.is_accepting and self.model is not None and self.slots > 0

    @property
    def keys(self) -> tuple[QueueKey, ...]:
        """The keys of the queues from which the agent takes requests."""
        if self.model is None:
            return ()
        if self.fingerprint is None:
            return (*self.names, *self.able)
        return (*self.names, Engine(self.model, self.fingerprint), *self.able)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The model names that requests for this agent may have; `None` means no name."""
        return (None, self.model, *self.adapted)


NOTHING = Offer(model=None, slots=0)


def by_text_of(request: GenerateRequest, model: str, origin: str | None) -> ByText:
    """Return the key of the agents that can continue an answer of `model` from its text."""
    needs = set(needs_of(request))
    if request.messages is not None:
        needs.add("continue_final_message")
    return ByText(request.model or model, tuple(sorted(needs)), origin)


Key = Able | ByText

MAX_UNUSED = 16
"""The maximum number of keys that are kept without requests."""


class UncommonNeeds:
    """The needs that not every agent meets, and the keys of the queues for these needs.

    An agent with its own engine has every ability except reading pictures, which needs a
    projector. An agent that forwards reports the abilities of its server. If some agent lacks an
    ability, requests that need this ability wait under a key `Able`. Every agent with all
    abilities of the key may take these requests. Answers that continue from text use keys `ByText`
    in the same way.

    `lacked` has every ability that an agent ever lacked, and only grows. Invariant: `keys` has the
    keys of all present requests, and at most `MAX_UNUSED` others.
    """

    def __init__(self) -> None:
        self.lacked: frozenset[Ability] = frozenset()
        self._keys: dict[Key, None] = {}
        self._used: Tally[Key] = Tally()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)

    def seen(self, abilities: frozenset[Ability]) -> bool:
        """Record the abilities of an agent.

        Returns whether the needs of waiting requests must be computed again.
        """
        before, self.lacked = self.lacked, self.lacked | (ABILITIES - abilities)
        return self.lacked != before

    def key_of(self, request: GenerateRequest) -> Able | None:
        """Return the key under which `request` waits.

        Returns `None` if each agent of its model can run it.
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
        """Return the keys whose requests an agent of this model may take.

        `goes_on_from` decides whether the agent may take requests of a key `ByText`.
        """
        return tuple(
            key
            for key in self._keys
            if key.model in (None, model)
            and abilities.issuperset(key.needs)
            and (isinstance(key, Able) or goes_on_from(key.origin))
        )

    def came(self, key: Key) -> bool:
        """Count a request that waits under `key`. Returns whether agents must offer a new key."""
        self._used.add(key, 1)
        if key in self._keys:
            return False
        self._keys[key] = None
        return True

    def left(self, key: Key | None) -> None:
        """Uncount a request that waited under `key` and has ended or changed its key."""
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
