"""The policy `cost`: choose the agent on which a request costs the fleet the fewest seconds.

A cost is the time of the request itself, plus the time that other requests lose.

The policy compares the agents with the longest cached prefixes of the prompt, and the best free
agent for an average request. If the cheapest agent has no free slot, the request waits for this
agent, but not longer than the wait saves. After that wait the request takes any agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log

from .....shared.inference import RequestId
from .....shared.inference.prefix_chain import TOKEN_BYTES, PrefixChain
from .....shared.inference.prefix_peers import Peer
from .....shared.reports.statistics import Fetches as Done
from ...caller import ANONYMOUS, Account
from ...decisions import LinkId
from ...view import RoutingView
from ..fetches import Fetches, Fetching
from ..policy import LONGEST_WAIT, Choice, Load, LoadOf, RoutingPolicy
from ..prefix_index import CacheKeys, Home, PrefixIndex
from ..rates import Measurement, Speed, Speeds

MOST_CANDIDATES = 8
"""The maximum holders of a prefix that are compared. The longest prefixes come first."""

LIKE = 1.25
"""Costs within this factor count as equal, and the load decides between the agents."""

MOST_CELLS = 2**53
"""The maximum cache size of an agent, in tokens."""

TINY = 1e-3
"""A backlog below this number of tokens is a rounding error and counts as zero."""

WARM_SHARE = 0.5
"""A request counts as warm if its agent is expected to have this share of its prompt cached."""


@dataclass(slots=True)
class Counts:
    """Counts of the requests given to agents.

    - `warm`: requests whose agent was expected to have much of the prompt cached.
    - `waited`: requests that waited for one agent; `gave_up` of them took another agent.
    - `evicted`: expected prefixes that agents reported as evicted.
    - `fetching`: requests that were to fetch a prefix from another agent.
    """

    warm: int = 0
    cold: int = 0
    waited: int = 0
    gave_up: int = 0
    evicted: int = 0
    fetching: int = 0


@dataclass(frozen=True, slots=True)
class _RoutedAgent:
    """An agent. `estimate` is the assumed size of its cache until the agent was `seen`.

    `home` identifies the agent's disk cache.
    """

    model: str
    estimate: float
    seen: float = 0.0
    home: Home | None = None

    @property
    def most_tokens(self) -> float:
        return self.seen or self.estimate


@dataclass(slots=True)
class _Started:
    link: LinkId
    model: str
    chain: PrefixChain
    expected: float
    uncached: float
    num_held: int
    cache_key: int | None = None
    is_read: bool = False


def seconds(
    load: Load, speed: Speed, *, uncached: float, answer: float, fetching: float = 0.0
) -> float:
    """Return the seconds that the request takes, plus the seconds that other requests lose.

    The agent computes `uncached` prompt tokens and an answer of `answer` tokens, after a prefix
    fetch of `fetching` seconds. A fetch delays no other request. The result assumes a free slot;
    if the agent has none, add `waiting_seconds`.
    """
    running = load.running if load.has_free_slot else max(load.slots - 1, 0)
    prefill = uncached / speed.prefill
    alone = speed.seconds_per_token(running)
    together = speed.seconds_per_token(running + 1)
    ahead = load.backlog / speed.prefill if load.has_free_slot else 0.0
    own = fetching + ahead + prefill + answer * together
    others = running * (prefill + answer * (together - alone))
    evicted = prefill * speed.reuse if load.is_cache_full else 0.0
    return own + others + evicted


def waiting_seconds(load: Load, speed: Speed) -> float:
    """Return the seconds until the agent has a free slot for a request that arrives now."""
    if load.has_free_slot:
        return 0.0
    return speed.slot_seconds * (1 + load.waiting) / max(load.slots, 1)


LEAST_WAIT = 0.005
"""The minimum seconds that a wait must save."""


class Best:
    """The cheapest considered agent with a free slot, and the cheapest without one."""

    def __init__(self) -> None:
        self._free: tuple[float, float, LinkId] | None = None
        self._full: tuple[float, float, LinkId] | None = None
        self._fetching: dict[LinkId, Fetching | None] = {}

    def consider(
        self, link: LinkId, load: Load, cost: float, wait: float, fetching: Fetching | None
    ) -> None:
        """Consider an agent on which a request costs `cost` seconds after `wait` seconds."""
        self._fetching[link] = fetching
        if load.has_free_slot:
            seen = (cost, load.share, link)
            self._free = seen if self._free is None else min(self._free, seen)
        else:
            seen = (cost + wait, cost, link)
            self._full = seen if self._full is None else min(self._full, seen)

    def choice(self, longest_wait: float) -> Choice | None:
        """Return the cheapest free agent, or a full agent that is cheaper including the wait.

        A request waits at most `longest_wait` seconds for a full agent.
        """
        if self._free is None:
            return None
        if self._full is not None and self._full[0] < self._free[0]:
            patience = min(self._free[0] - self._full[1], longest_wait)
            if patience >= LEAST_WAIT:
                return Choice(self._full[2], patience)
        link = self._free[2]
        return Choice(link, fetching=self._fetching[link])


class LeastCost(RoutingPolicy):
    """The policy `cost`. It learns the cached prefixes and the speed of each agent."""

    def __init__(self, longest_wait: float = LONGEST_WAIT) -> None:
        self._longest_wait = longest_wait
        self._prefixes = PrefixIndex()
        self._cache_keys = CacheKeys()
        self._speeds = Speeds()
        self._agents: dict[LinkId, _RoutedAgent] = {}
        self._started: dict[RequestId, _Started] = {}
        self._backlog: dict[LinkId, float] = {}
        self._fetches = Fetches()
        self.counts = Counts()

    @property
    def view(self) -> RoutingView:
        counts = self.counts
        return RoutingView(
            num_warm=counts.warm,
            num_cold=counts.cold,
            num_waited=counts.waited,
            num_gave_up=counts.gave_up,
            num_evicted=counts.evicted,
            num_fetching=counts.fetching,
            num_beliefs=self.num_beliefs,
            num_cache_keys=self.num_cache_keys,
        )

    @property
    def num_beliefs(self) -> int:
        """The number of pairs of a prefix and an agent that probably has the prefix cached."""
        return len(self._prefixes)

    @property
    def num_cache_keys(self) -> int:
        """The number of remembered cache keys."""
        return len(self._cache_keys)

    def believes_in(self, link: LinkId) -> bool:
        """Return whether an agent is expected to have any prefix cached."""
        return self._prefixes.tokens_of(link) > 0

    def believes(self, link: LinkId, key: int) -> bool:
        """Return whether an agent is expected to have the prefix `key` cached."""
        return self._prefixes.last_held(link, (key,)) is not None

    # ---- agents

    def agent_is(
        self,
        link: LinkId,
        model: str | None,
        most_tokens: float,
        peer: Peer | None = None,
        home: Home | None = None,
    ) -> None:
        self._fetches.agent_is(link, peer)
        known = self._agents.get(link)
        if known is not None and known.model != model:
            self.agent_left(link)
            known = None
        if model is not None:
            seen = 0.0 if known is None else known.seen
            if home is not None and (known is None or known.home != home):
                self._prefixes.take_back(link, home)
                seen = max(seen, self._prefixes.tokens_of(link))
            self._agents[link] = _RoutedAgent(model, most_tokens, seen, home)

    def cache_is(self, link: LinkId, num_tokens: int) -> None:
        known = self._agents.get(link)
        num_tokens = min(num_tokens, MOST_CELLS)
        if known is not None and num_tokens > known.seen:
            self._agents[link] = replace(known, seen=num_tokens)

    def agent_left(self, link: LinkId) -> None:
        """Forget the cache of an agent that left or changed its model, except its disk cache."""
        known = self._agents.pop(link, None)
        self._fetches.agent_left(link)
        if known is not None and known.home is not None:
            self._prefixes.set_aside(link, known.home)
        else:
            self._prefixes.forget(link)
        self._speeds.forget(link)

    def evicted(self, link: LinkId, keys: Sequence[int] | None) -> None:
        if keys is not None:
            self.counts.evicted += self._prefixes.drop(link, keys)
            return
        before = len(self._prefixes)
        self._prefixes.forget(link)
        self.counts.evicted += before - len(self._prefixes)

    def fetched(self, link: LinkId, done: Done) -> None:
        self._fetches.measured(link, done)

    def rank(self, link: LinkId, load: Load) -> float:
        """Return the cost of an average request without a cached prefix; a lower cost is better.

        If costs are equal, the load decides.
        """
        known = self._agents.get(link)
        if known is None or not self._speeds.is_known(known.model):
            return load.share
        cost = seconds(
            self._with_backlog(link, load),
            self._speeds.of(link, known.model),
            uncached=self._speeds.computed_tokens(known.model),
            answer=self._speeds.answer_tokens(known.model),
        )
        return floor(log(max(cost, 1e-6)) / log(LIKE)) + load.share * 0.999

    def seconds_to_first_token(self, link: LinkId) -> float | None:
        known = self._agents.get(link)
        if known is None or not self._speeds.is_known(known.model):
            return None
        return self._backlog.get(link, 0.0) / self._speed(link).prefill

    # ---- the choice

    def choose(
        self,
        chain: PrefixChain,
        *,
        load_of: LoadOf,
        free: LinkId | None,
        cache_key: int | None = None,
        most_answer: int | None = None,
        may_wait: bool = True,
    ) -> Choice | None:
        """Return the agent with the lowest cost.

        The agent of the last request with the same `cache_key` counts as a holder of a part of the
        prompt.
        """
        if free is None:
            return None
        holders = self._holders(chain, cache_key)
        if not holders:
            return Choice(free)
        if free not in holders and (last := self._prefixes.last_held(free, chain.keys)) is not None:
            holders[free] = chain.ends[last] * self._speed(free).hit_rate
        best = Best()
        for link in {free: 0, **holders}:
            if (load := load_of(link)) is not None:
                load = self._with_backlog(link, load)
                fetching = self._fetching(link, load, chain, holders)
                held, speed = holders.get(link, 0.0), self._speed(link)
                cost = self._cost(link, load, speed, chain, held, most_answer, fetching)
                wait = waiting_seconds(load, speed)
                best.consider(link, load, cost, wait, fetching)
        return best.choice(self._longest_wait if may_wait else 0.0)

    def _fetching(
        self, link: LinkId, load: Load, chain: PrefixChain, holders: Mapping[LinkId, float]
    ) -> Fetching | None:
        """Return the prefix that an agent with a free slot should fetch, or `None`."""
        if not load.has_free_slot or not self._fetches.is_peer(link):
            return None
        per_byte = self._per_byte(self._agents[link].model, chain)
        held = {one: size * per_byte for one, size in holders.items()}
        return self._fetches.best(link, held, held.get(link, 0.0), self._speed(link).prefill)

    def _holders(self, chain: PrefixChain, cache_key: int | None) -> dict[LinkId, float]:
        """Return the agents that probably have a part of the prompt cached, with its bytes."""
        holders = {
            link: chain.ends[last] * self._speed(link).hit_rate
            for link, last in self._prefixes.holders(chain.keys, MOST_CANDIDATES).items()
        }
        last = None if cache_key is None else self._cache_keys.held(cache_key)
        if last is not None and last[0] in self._agents:
            link, share = last
            held = self._prefixes.last_held(link, chain.keys)
            known = 0.0 if held is None else chain.ends[held] * self._speed(link).hit_rate
            holders[link] = max(known, chain.size * share)
        return holders

    def _cost(
        self,
        link: LinkId,
        load: Load,
        speed: Speed,
        chain: PrefixChain,
        held: float,
        most_answer: int | None,
        fetching: Fetching | None,
    ) -> float:
        """Return the cost on an agent that has `held` bytes of the prompt cached.

        If `fetching` is given, the agent fetches a longer prefix first.
        """
        model = self._agents[link].model
        per_byte = self._per_byte(model, chain)
        size = chain.size * per_byte
        cached = held * per_byte if fetching is None else fetching.num_tokens
        seconds_more = 0.0 if fetching is None else self._fetches.seconds(link, fetching.num_tokens)
        answer = self._speeds.answer_tokens(model)
        if most_answer is not None:
            answer = min(answer, most_answer)
        return seconds(
            load, speed, uncached=max(size - cached, 1.0), answer=answer, fetching=seconds_more
        )

    def _with_backlog(self, link: LinkId, load: Load) -> Load:
        most = self._agents[link].most_tokens
        return Load(
            running=load.running,
            slots=load.slots,
            has_free_slot=load.has_free_slot,
            waiting=load.waiting,
            backlog=self._backlog.get(link, 0.0),
            is_cache_full=self._prefixes.tokens_of(link) >= 0.9 * most,
        )

    def _speed(self, link: LinkId) -> Speed:
        return self._speeds.of(link, self._agents[link].model)

    def _per_byte(self, model: str, chain: PrefixChain) -> float:
        """Return the expected tokens per byte of the prompt."""
        return 1 / TOKEN_BYTES if chain.is_tokens else self._speeds.tokens_per_byte(model)

    # ---- what becomes of requests

    def started(
        self,
        id: RequestId,
        link: LinkId,
        chain: PrefixChain,
        *,
        cache_key: int | None = None,
        account: Account = ANONYMOUS.account,
        waited_for: LinkId | None = None,
        fetching: Fetching | None = None,
    ) -> None:
        if link not in self._agents:
            return
        model = self._agents[link].model
        last = self._prefixes.last_held(link, chain.keys)
        per_byte = self._per_byte(model, chain)
        size = chain.size * per_byte
        held = 0.0 if last is None else chain.ends[last] * per_byte
        expected_hits = held * self._speed(link).hit_rate
        fetched = 0.0 if fetching is None else fetching.num_tokens
        self.counts.fetching += fetching is not None
        uncached = max(size - max(expected_hits, fetched), 0.0)
        was_there = cache_key is not None and self._cache_keys.started(cache_key, link, account)
        self._started[id] = _Started(
            link,
            model,
            chain,
            held,
            uncached,
            num_held=0 if last is None else last + 1,
            cache_key=cache_key if was_there else None,
        )
        self._backlog[link] = self._backlog.get(link, 0.0) + uncached
        self._count(is_warm=held >= size * WARM_SHARE and held > 0)
        if waited_for is not None:
            self.counts.waited += 1
            self.counts.gave_up += waited_for != link
        self._will_hold(link, chain, per_byte)

    def _will_hold(self, link: LinkId, chain: PrefixChain, per_byte: float) -> None:
        ends = [int(end * per_byte) for end in chain.ends]
        self._prefixes.computes(link, chain.keys, ends)
        self._prefixes.trim(link, self._agents[link].most_tokens)

    def _count(self, *, is_warm: bool) -> None:
        if is_warm:
            self.counts.warm += 1
        else:
            self.counts.cold += 1

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        one = self._started.get(id)
        if one is None or one.is_read:
            return
        self._read(one)
        is_gone = self._prefixes.last_held(one.link, one.chain.keys) != len(one.chain.keys) - 1
        if is_gone and one.chain.keys and one.link in self._agents:
            # It was evicted after the balancer had sent the request, and is computed again now.
            self._will_hold(one.link, one.chain, self._per_byte(one.model, one.chain))
        if not one.chain.is_tokens:
            self._speeds.prompt_read(one.model, num_tokens, one.chain.size)
        if one.expected:
            expected = min(one.expected, num_tokens)
            self._speeds.found(one.link, expected=expected, cached=num_cached)
        if one.cache_key is not None and num_tokens:
            self._cache_keys.found(one.cache_key, num_cached / num_tokens)

    def ended(self, id: RequestId, end: Measurement | None) -> bool:
        one = self._started.pop(id, None)
        if one is None:
            return False
        is_unread = not one.is_read
        self._read(one)
        if end is None:
            if is_unread:  # how far it came is not known
                self._prefixes.drop(one.link, one.chain.keys[one.num_held :])
            return False
        if one.chain.keys:
            self._prefixes.grows(one.link, one.chain.keys[-1], end.usage.completion_tokens)
        return self._speeds.ended(one.link, one.model, end)

    def _read(self, one: _Started) -> None:
        """Subtract a computed prompt from the backlog of its agent."""
        if one.is_read:
            return
        one.is_read = True
        left = self._backlog.get(one.link, 0.0) - one.uncached
        if left > TINY:
            self._backlog[one.link] = left
        else:
            self._backlog.pop(one.link, None)

    def check_integrity(self) -> None:
        self._prefixes.check_integrity()
        unread = [one for one in self._started.values() if not one.is_read]
        for link, backlog in self._backlog.items():
            if abs(backlog - sum(one.uncached for one in unread if one.link == link)) > 1:
                raise RuntimeError(f"the backlog of {link} is miscounted")
