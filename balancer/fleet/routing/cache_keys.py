"""Remembers the agent of a caller's last request under a cache key, and the tokens saved.

Prefixes say which agent holds a prompt. A key says more: that requests belong together, such as
those of one program, whatever they begin with, and that a prompt is stored on an agent's disk.

Invariant: at most `max_keys` are remembered. If there are more, the least recently used key of the
caller with most is forgotten.
"""

from dataclasses import dataclass
from hashlib import blake2b

from ..caller import ANONYMOUS, Account
from ..decisions import LinkId
from ..shares import FairEviction

MAX_CACHE_KEYS = 2**14
"""Keys of callers: some 4 MB."""

FIRST_SHARE = 0.5
"""The part of a prompt that counts as held, until a second request has shown it."""

LEAST_SHARE = 0.02
"""The share that counts as cached if nothing was: so the key's agent wins between equals."""


@dataclass(slots=True)
class _Last:
    """The agent of the last request; `share` of a prompt is expected to be there."""

    link: LinkId
    share: float = FIRST_SHARE


def digest_of(*names: str) -> int:
    """A key that two callers, models or names do not share."""
    digest = blake2b(digest_size=8)
    for name in names:
        data = name.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big")


class CacheKeys:
    """Shares are parts of prompts, from 0 to 1."""

    def __init__(self, max_keys: int = MAX_CACHE_KEYS) -> None:
        self._last: dict[int, _Last] = {}
        self.pool: FairEviction[Account, int] = FairEviction(max_keys, max_keys)

    def __len__(self) -> int:
        return len(self._last)

    def held(self, key: int) -> tuple[LinkId, float] | None:
        """The agent of the last request, and the share of a prompt that it is taken to hold."""
        last = self._last.get(key)
        return None if last is None else (last.link, max(last.share, LEAST_SHARE))

    def started(self, key: int, link: LinkId, account: Account = ANONYMOUS.account) -> bool:
        """An agent was given a request of a caller; whether it had the one before as well."""
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
        """The agent of the request before had this share of the prompt cached."""
        last = self._last.get(key)
        if last is not None:
            last.share = (last.share + share) / 2
