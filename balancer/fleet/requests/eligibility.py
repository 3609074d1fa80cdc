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
    """Agents that can go on with each other's answers: their model's name and fingerprint."""

    model: str
    fingerprint: str

    @property
    def is_by_text(self) -> bool:
        """Whether the request continues by the answer's text, and not by its token ids."""
        return self.fingerprint.startswith(BY_TEXT)


class Able(NamedTuple):
    """Agents that can do all of this, which not all can (`shared.inference.abilities`)."""

    model: str | None
    needs: tuple[str, ...]


class ByText(NamedTuple):
    """Agents that can go on with an answer by its text: of the same model, and able to do this.

    All of it came from an engine with the fingerprint `origin`: an engine with another one has
    other weights, and does not go on. `None`: it came from a server, or from several agents.
    """

    model: str
    needs: tuple[str, ...]
    origin: str | None


class Warm(NamedTuple):
    """One agent alone, which has computed much of the prompt; for a while. It has the model."""

    model: str | None
    link: LinkId


class Alone(NamedTuple):
    """Agents that have no other request, of those that `key` means; `model` is that of `key`."""

    model: str | None
    key: str | Engine | Able | ByText | None


QueueKey = str | Engine | Able | ByText | Warm | Alone | None
"""The key of a queue: what its requests wait for, a model by name or some of its agents, or any.

Or any of those that can do what it needs.
"""


def model_of(key: QueueKey) -> str | None:
    """The name of the model that requests under this key wait for; `None` is any."""
    return key if key is None or isinstance(key, str) else key.model


def agents_of(key: QueueKey) -> QueueKey:
    """The key of the agents that can serve requests under `key`, be they alone there or not."""
    return key.key if isinstance(key, Alone) else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An agent's offer to requests. Without a model it gets none.

    - `cache_tokens`: the tokens that its cache holds, until the agent reports it itself.
    - `able`: the needs that it can meet, of those that not all agents can.
    - `adapted`: the names of its model under each of its adapters.
    - `peer`: the address at which it lends prefixes to other agents.
    - `home`: the place whose cache outlives the agent.
    - `allowed`: the requests that it may have at once, besides its slots (`circuit_breaker.py`).
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
        """Whether the agent takes work and has a slot, free or not."""
        return self.is_accepting and self.model is not None and self.slots > 0

    @property
    def keys(self) -> tuple[QueueKey, ...]:
        """The queues it serves: of its model, its engine, any model, and its abilities."""
        if self.model is None:
            return ()
        if self.fingerprint is None:
            return (*self.names, *self.able)
        return (*self.names, Engine(self.model, self.fingerprint), *self.able)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The model names of requests that the agent takes; `None` is any."""
        return (None, self.model, *self.adapted)


NOTHING = Offer(model=None, slots=0)


def by_text_of(request: GenerateRequest, model: str, origin: str | None) -> ByText:
    """The key of agents that can go on by text with an answer of `model`; see `ByText`."""
    needs = set(needs_of(request))
    if request.messages is not None:
        needs.add("continue_final_message")
    return ByText(request.model or model, tuple(sorted(needs)), origin)


Key = Able | ByText

MAX_UNUSED = 16
"""Keys that are kept for the next request like those before."""


class UncommonNeeds:
    """Requests that not every agent can serve, and the keys by which they find those that can.

    An agent with an engine of its own can do everything, but for pictures, which take a projector.
    One that forwards says what its server can do. Requests that need what an agent lacks must not
    go to it. They wait for a key of their own, `Able`, which every agent offers that can do all of
    it. As long as no agent lacks anything there are no such keys. Answers that go on by text are
    found in the same way, by `ByText`.

    `lacked` is what any agent was seen to lack; it only grows, up to all abilities there are.
    Invariant: `keys` has those of all requests that are here, and at most `MAX_UNUSED` others.
    """

    def __init__(self) -> None:
        self.lacked: frozenset[Ability] = frozenset()
        self._keys: dict[Key, None] = {}
        self._used: Tally[Key] = Tally()

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def seen(self, abilities: frozenset[Ability]) -> bool:
        """An agent can do this. Returns whether requests are to be looked at again."""
        before, self.lacked = self.lacked, self.lacked | (ABILITIES - abilities)
        return self.lacked != before

    def key_of(self, request: GenerateRequest) -> Able | None:
        """The key of the queue of the request; `None` if every agent of its model can serve it."""
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
        """The keys that an agent of this model offers; `goes_on_from` says which it has by text."""
        return tuple(
            key
            for key in self._keys
            if key.model in (None, model)
            and abilities.issuperset(key.needs)
            and (isinstance(key, Able) or goes_on_from(key.origin))
        )

    def came(self, key: Key) -> bool:
        """A request waits for `key`. Returns whether agents have others to offer now."""
        self._used.add(key, 1)
        if key in self._keys:
            return False
        self._keys[key] = None
        return True

    def left(self, key: Key | None) -> None:
        """A request with this key, if it had one, is over, or has another."""
        if key is None:
            return
        self._used.add(key, -1)
        unused = [each for each in self._keys if each not in self._used]
        for each in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._keys[each]

    def check_integrity(self, keys: Iterable[Key | None]) -> None:
        """For tests: raise if an invariant does not hold; `keys` are those of all requests."""
        counts = Counter(key for key in keys if key is not None)
        used = counts.keys()
        if any(self._used[key] != counts[key] for key in (*self._used, *used)):
            raise RuntimeError("keys of requests are miscounted")
        if not used <= self._keys.keys() or len(self._keys) > len(used) + MAX_UNUSED:
            raise RuntimeError("keys without requests, or requests without theirs")
