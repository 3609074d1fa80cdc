"""Remembers the agent of a caller's last request under each cache key, and the share of tokens
saved.

Prefixes tell which agent has a prompt cached. A cache key tells more: requests belong together,
such as those of one program, whatever their prompts begin with; or a prompt is stored on an agent's
disk.

Invariant: at most `max_keys` keys are remembered. Beyond that, the least recently used key of the
caller with most keys is forgotten.
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
    """The agent of the last request, and the `share` of a prompt that it is expected to have
    cached."""

    link: LinkId
    share: float = FIRST_SHARE


def digest_of(*names: str) -> int:
    """Return a number for a key, which differs for each caller, model and name."""
    digest = blake2b(digest_size=8)
    for name in names:
        data = name.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big")


class CacheKeys:
    """The agents by cache key. Shares are parts of prompts, from 0 to 1."""

    def __init__(self, max_keys: int = MAX_CACHE_KEYS) -> None:
        self._last: dict[int, _Last] = {}
        self.pool: FairEviction[Account, int] = FairEviction(max_keys, max_keys)

    def __len__(self) -> int:
        return len(self._last)

    def held(self, key: int) -> tuple[LinkId, float] | None:
        """Return the agent of the last request, and the share of a prompt that it is expected to
        have cached."""
        last = self._last.get(key)
        return None if last is None else (last.link, max(last.share, LEAST_SHARE))

    def started(self, key: int, link: LinkId, account: Account = ANONYMOUS.account) -> bool:
        """Record that an agent got a caller's request.

        Returns whether it also got the previous one.
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
