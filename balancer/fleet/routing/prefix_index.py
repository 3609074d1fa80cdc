"""Predicts which prompt prefixes each agent has cached, and finds agents by cache key.

An agent keeps every prefix until its cache is full. The agent then evicts the least recently used
prefixes, the longest first. The index simulates this eviction, and a wrong prediction costs one
prefill.

If an agent with a disk cache leaves, its prefixes are set aside under its home until an agent
returns to this home.

Requests with the same cache key belong together, even if their prompts begin differently.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ..caller import ANONYMOUS, Account
from ..decisions import LinkId
from ..shares import FairEviction

MAX_ENTRIES = 2**17
"""The maximum pairs of a prefix and an agent; they take about 40 MB."""

MAX_HOLDERS = 32
"""The maximum agents of one prefix. If there are more, the index drops the oldest."""

Home = tuple[str, str]
"""An agent's name, which stays the same after a restart, and the identity of its disk cache."""


class PrefixIndex:
    """The prefixes that each agent is expected to have cached. Lengths are in tokens.

    Invariants: a prefix has at most `MAX_HOLDERS` agents; the index has at most `max_entries`
    pairs of a prefix and an agent, and at most half as many pairs set aside. Agents that left have
    no other entries.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._held: OrderedDict[LinkId, OrderedDict[int, int]] = OrderedDict()
        """The prefixes of each agent by last use, with the tokens that each prefix adds."""
        self._tokens: dict[LinkId, int] = {}
        self._holders: dict[int, tuple[LinkId, ...]] = {}
        self._num_entries = 0
        self._aside: OrderedDict[Home, OrderedDict[int, int]] = OrderedDict()
        self._num_aside = 0

    def __len__(self) -> int:
        """Return the number of pairs of a key and an agent, in use or set aside."""
        return self._num_entries + self._num_aside

    def tokens_of(self, link: LinkId) -> int:
        """Return the number of tokens that an agent holds."""
        return self._tokens.get(link, 0)

    def holders(self, keys: Sequence[int], most: int) -> dict[LinkId, int]:
        """Return the holders of the longest prefixes, at most `most`.

        The values are the indices of each holder's last key in `keys`.
        """
        found: dict[LinkId, int] = {}
        for index in range(len(keys) - 1, -1, -1):
            for link in reversed(self._holders.get(keys[index], ())):
                found.setdefault(link, index)
                if len(found) >= most:
                    return found
        return found

    def last_held(self, link: LinkId, keys: Sequence[int]) -> int | None:
        """Return the index of the last key in `keys` that an agent holds, or `None`."""
        held = self._held.get(link)
        if held is None:
            return None
        return next((i for i in range(len(keys) - 1, -1, -1) if keys[i] in held), None)

    def computes(self, link: LinkId, keys: Sequence[int], ends: Sequence[int]) -> None:
        """Record that an agent has or will soon have the prefixes `keys`.

        Each prefix ends at the token in `ends` with the same index.
        """
        held = self._held.setdefault(link, OrderedDict())
        for index in range(len(keys) - 1, -1, -1):
            added = ends[index] - (ends[index - 1] if index else 0)
            self._put(link, held, keys[index], added)
        if not held:
            del self._held[link]
        self._bound()

    def grows(self, link: LinkId, key: int, num_tokens: int) -> None:
        """Record that the agent generated `num_tokens` after the prefix `key`."""
        held = self._held.get(link)
        if held is not None and key in held:
            held[key] += num_tokens
            self._tokens[link] += num_tokens

    def trim(self, link: LinkId, capacity: float) -> None:
        """Drop the least recently used prefixes of an agent until it holds at most `capacity`."""
        while self.tokens_of(link) > capacity and link in self._held:
            self._drop_oldest(link)

    def drop(self, link: LinkId, keys: Iterable[int]) -> int:
        """Drop the prefixes `keys` of an agent. Returns how many of them were recorded."""
        num = 0
        for key in keys:
            if key in self._held.get(link, ()):
                self._drop(link, key)
                num += 1
        return num

    def forget(self, link: LinkId) -> None:
        """Drop all prefixes of an agent that left or whose cache is empty."""
        for key in self._held.pop(link, ()):
            self._num_entries -= 1
            self._let_go(key, link)
        self._tokens.pop(link, None)

    def set_aside(self, link: LinkId, home: Home) -> None:
        """Keep the prefixes of an agent that left under its `home`, until it returns."""
        held = self._held.get(link)
        self.forget(link)
        if not held:
            return
        self._num_aside += len(held) - len(self._aside.pop(home, ()))
        self._aside[home] = held
        while self._num_aside > self._max_entries // 2:
            self._num_aside -= len(self._aside.popitem(last=False)[1])

    def take_back(self, link: LinkId, home: Home) -> None:
        """Give the prefixes set aside for `home` to the agent that returned there."""
        aside = self._aside.pop(home, None)
        if not aside:
            return
        self._num_aside -= len(aside)
        held = self._held.setdefault(link, OrderedDict())
        for key, added in aside.items():
            self._put(link, held, key, added)
        self._bound()

    # ---- inside

    def _bound(self) -> None:
        while self._num_entries > self._max_entries:
            self._drop_one_of_next()

    def _put(self, link: LinkId, held: OrderedDict[int, int], key: int, added: int) -> None:
        before = held.get(key)
        held[key] = added
        held.move_to_end(key)
        self._tokens[link] = self._tokens.get(link, 0) + added - (before or 0)
        if before is not None:
            return
        self._num_entries += 1
        holders = (*self._holders.get(key, ()), link)
        self._holders[key] = holders
        if len(holders) > MAX_HOLDERS:
            self._drop(holders[0], key)

    def _drop_one_of_next(self) -> None:
        """Drop one prefix of the next agent in turn, so that all agents keep about as many."""
        link = next(iter(self._held))
        self._held.move_to_end(link)
        self._drop_oldest(link)

    def _drop_oldest(self, link: LinkId) -> None:
        self._drop(link, next(iter(self._held[link])))

    def _drop(self, link: LinkId, key: int) -> None:
        held = self._held[link]
        self._tokens[link] -= held.pop(key)
        self._num_entries -= 1
        self._let_go(key, link)
        if not held:
            del self._held[link]
            del self._tokens[link]

    def _let_go(self, key: int, link: LinkId) -> None:
        left = tuple(each for each in self._holders[key] if each != link)
        if left:
            self._holders[key] = left
        else:
            del self._holders[key]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        pairs = {(key, link) for link, held in self._held.items() for key in held}
        if pairs != {(key, link) for key, links in self._holders.items() for link in links}:
            raise RuntimeError("keys and holders disagree")
        if len(pairs) != self._num_entries or self._num_entries > self._max_entries:
            raise RuntimeError(f"{len(pairs)} beliefs, {self._num_entries} counted")
        if any(len(links) > MAX_HOLDERS for links in self._holders.values()):
            raise RuntimeError("a key has too many holders")
        if {link: sum(held.values()) for link, held in self._held.items()} != self._tokens:
            raise RuntimeError("tokens are miscounted")
        if self._num_aside != sum(map(len, self._aside.values())):
            raise RuntimeError("what is set aside is miscounted")
        if self._num_aside > self._max_entries // 2:
            raise RuntimeError("too much is set aside")


# ---- cache keys

MAX_CACHE_KEYS = 2**14
"""The maximum number of remembered cache keys; they take about 4 MB."""

FIRST_SHARE = 0.5
"""The assumed cached share of a prompt until a second request with the cache key has shown it."""

LEAST_SHARE = 0.02
"""The assumed cached share if an agent had nothing cached.

The share is above 0, so that the agent of the cache key wins among equal agents.
"""


@dataclass(slots=True)
class _Last:
    """The agent of the last request, and the prompt `share` that it probably has cached."""

    link: LinkId
    share: float = FIRST_SHARE


def digest_of(*names: str) -> int:
    """Return a number for a cache key. Callers, models and names give different numbers."""
    digest = blake2b(digest_size=8)
    for name in names:
        data = name.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big")


class CacheKeys:
    """The agent of the last request with each cache key. Shares are between 0 and 1.

    Invariant: the index has at most `max_keys` cache keys. If it would have more, the caller with
    most keys loses its least recently used key.
    """

    def __init__(self, max_keys: int = MAX_CACHE_KEYS) -> None:
        self._last: dict[int, _Last] = {}
        self.pool: FairEviction[Account, int] = FairEviction(max_keys, max_keys)

    def __len__(self) -> int:
        return len(self._last)

    def held(self, key: int) -> tuple[LinkId, float] | None:
        """Return the agent of the last request, and its expected cached share of a prompt."""
        last = self._last.get(key)
        return None if last is None else (last.link, max(last.share, LEAST_SHARE))

    def started(self, key: int, link: LinkId, account: Account = ANONYMOUS.account) -> bool:
        """Record that the agent `link` started a request of `account` with this cache key.

        Returns whether the agent also had the previous request with this cache key.
        """
        last = self._last.get(key)
        if last is None:
            self._last[key] = _Last(link)
            self.pool.add(key, account, 1)
            if (gone := self.pool.evict()) is not None:
                del self._last[gone]
            return False
        self.pool.use(key)
        is_same, last.link = last.link == link, link
        return is_same

    def found(self, key: int, share: float) -> None:
        """Record the share of the prompt that the agent had cached."""
        last = self._last.get(key)
        if last is not None:
            last.share = (last.share + share) / 2
