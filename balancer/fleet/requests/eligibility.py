"""Which agents may serve a request: what it asks for, what an agent offers, and keys for both.

Dispatch knows this of a request, and never its text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ....shared.continuation import BY_TEXT
from ....shared.inference import GenerateRequest, PriorityClass, RequestId, priority_class_of
from ....shared.inference.abilities import ABILITIES, Ability, needs_of
from ....shared.inference.prefix_chain import NO_CHAIN, PrefixChain, chain_of
from ....shared.inference.prefix_peers import Peer
from ..caller import ANONYMOUS, Caller
from ..decisions import LinkId
from ..routing.beliefs import Home
from ..routing.cache_keys import digest_of
from ..tally import Tally
from ..token_estimate import LEAST, charge_of


class Engine(NamedTuple):
    """Agents that can go on with each other's answers: their model's name and fingerprint."""

    model: str
    fingerprint: str

    @property
    def is_by_text(self) -> bool:
        """Whether they go on by the answer's text, and not by its token ids."""
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
    return key.model if isinstance(key, Engine | Able | ByText | Warm | Alone) else key


def agents_of(key: QueueKey) -> QueueKey:
    """The key of the agents that can serve requests under `key`, be they alone there or not."""
    return key.key if isinstance(key, Alone) else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What an agent can be given. Without a model it gets nothing.

    `cache_tokens` is how much its cache holds, as long as it has not said so itself. `able` are
    the needs that it can meet, of those that not all agents can. `adapted` are the names of its
    model under each of its adapters. As a `peer` it lends prefixes to other agents. What is
    cached in its `home` outlives it. It may have `allowed` requests at once, however many slots it
    has (`circuit_breaker.py`).
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
        """Whether it takes work and has a slot, free or not."""
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
        """What requests may name that it takes; `None` is any."""
        return (None, self.model, *self.adapted)


NOTHING = Offer(model=None, slots=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRequest:
    """`model` of `None` is any. A part of the answer came from `engine`: only such agents go on.

    By `chain` and `most_answer`, the most tokens of the answer, an agent is chosen.

    `priority_class`, `caller` and `charge` say when it has its turn: `charge` is about how many
    tokens it takes (`token_estimate.py`). Of one caller's requests, those with the same
    `cache_key` belong together. `num_tokens` of the prompt are known only where it was given as
    token ids. `able`: what it needs is not for every agent, or its answer goes on by text. One that
    `is_isolated` may have ended its agent: it goes to one that has no other request.
    """

    model: str | None = None
    priority_class: PriorityClass = "default"
    caller: Caller = ANONYMOUS
    cache_key: int | None = None
    num_tokens: int | None = None
    engine: Engine | None = None
    able: Able | ByText | None = None
    chain: PrefixChain = NO_CHAIN
    most_answer: int | None = None
    charge: int = LEAST
    is_isolated: bool = False

    @property
    def queue_key(self) -> QueueKey:
        """The key of the queue it waits in."""
        key = self.engine or self.able or self.model
        return Alone(model_of(key), key) if self.is_isolated else key


def routing_of(request: GenerateRequest, caller: Caller) -> RoutingRequest:
    """The routing request of `request`."""
    prompt = request.prompt
    return RoutingRequest(
        model=request.model,
        caller=caller,
        cache_key=_cache_key(request, caller),
        num_tokens=len(prompt) if isinstance(prompt, tuple) else None,
        chain=chain_of(request),
        most_answer=0 if request.prefill_only else request.max_tokens,
        priority_class=priority_class_of(request.priority),
        charge=charge_of(request),
    )


def _cache_key(request: GenerateRequest, caller: Caller) -> int | None:
    """The key of a caller's prompts. The same name, chosen by another caller, is another key."""
    name = request.cache_key or request.prompt_cache_key
    if not name:
        return None
    account = caller.account
    return digest_of(account.name, account.address or "", request.model or "", name)


def by_text_of(request: GenerateRequest, model: str, origin: str | None) -> ByText:
    """The key of agents that can go on by text with an answer of `model`; see `ByText`."""
    needs = set(needs_of(request))
    if request.messages is not None:
        needs.add("continue_final_message")
    return ByText(request.model or model, tuple(sorted(needs)), origin)


Key = Able | ByText

MAX_UNUSED = 16
"""Keys that are kept for the next request like those before."""


class Needs:
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
        self._by_request: dict[RequestId, Key] = {}

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def seen(self, abilities: frozenset[Ability]) -> bool:
        """An agent can do this. Returns whether requests are to be looked at again."""
        before, self.lacked = self.lacked, self.lacked | (ABILITIES - abilities)
        return self.lacked != before

    def key_of(self, request: GenerateRequest) -> Able | None:
        """What the request waits for, unless every agent of its model can serve it."""
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

    def came(self, id: RequestId, key: Key) -> bool:
        """A request waits for `key`. Returns whether agents have others to offer now."""
        self.left(id)
        self._by_request[id] = key
        self._used.add(key, 1)
        if key in self._keys:
            return False
        self._keys[key] = None
        return True

    def left(self, id: RequestId) -> None:
        """A request is over, if it had a key."""
        if (key := self._by_request.pop(id, None)) is None:
            return
        self._used.add(key, -1)
        unused = [each for each in self._keys if each not in self._used]
        for each in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._keys[each]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        used = set(self._by_request.values())
        if not used <= self._keys.keys() or len(self._keys) > len(used) + MAX_UNUSED:
            raise RuntimeError("keys without requests, or requests without theirs")
