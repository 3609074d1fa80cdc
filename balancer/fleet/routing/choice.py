"""The cost of giving a request to an agent, and the choice of the cheapest agent.

A cost is in seconds: the time of the request itself, and the time that other requests lose.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ..decisions import LinkId
from .fetches import Fetching
from .rates import Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An agent's load: requests `running` in its `slots`, and requests `waiting` for this agent
    only.

    `backlog`: prompt tokens that the agent still has to compute. `is_cache_full`: each new prefix
    evicts another.
    """

    running: int
    slots: int
    has_free_slot: bool
    backlog: float = 0.0
    waiting: int = 0
    is_cache_full: bool = False

    @property
    def share(self) -> float:
        """The share of the agent's slots that are taken."""
        return self.running / self.slots


def seconds(
    load: Load, speed: Speed, *, uncached: float, answer: float, fetching: float = 0.0
) -> float:
    """Return the seconds until `uncached` prompt tokens and an answer are computed, plus what
    others lose.

    Before that, the rest of the prompt takes `fetching` seconds, in which others lose nothing. The
    result assumes a free slot; add `waiting_seconds` if there is none. Every running sequence waits
    while the prompt is computed, and its tokens then come a little slower. Tokens evicted from a
    full cache are computed again as often as cached tokens are reused.
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
"""A wait that saves fewer seconds is not worth a timer."""


class Choice(NamedTuple):
    """The chosen agent `link`.

    If it has no free slot, it is worth waiting `patience` seconds for it.

    `fetching`: the agent should first fetch this prefix from another agent.
    """

    link: LinkId
    patience: float = 0.0
    fetching: Fetching | None = None


class Best:
    """The cheapest of the considered agents, with and without a free slot."""

    def __init__(self) -> None:
        self._free: tuple[float, float, LinkId] | None = None
        self._full: tuple[float, float, LinkId] | None = None
        self._fetching: dict[LinkId, Fetching | None] = {}

    def consider(
        self, link: LinkId, load: Load, cost: float, wait: float, fetching: Fetching | None
    ) -> None:
        """Consider an agent on which the request costs `cost` seconds after a wait of `wait`
        seconds."""
        self._fetching[link] = fetching
        if load.has_free_slot:
            seen = (cost, load.share, link)
            self._free = seen if self._free is None else min(self._free, seen)
        else:
            seen = (cost + wait, cost, link)
            self._full = seen if self._full is None else min(self._full, seen)

    def choice(self, longest_wait: float) -> Choice | None:
        """Return the cheapest agent with a free slot, unless a full agent costs less including the
        wait."""
        if self._free is None:
            return None
        if self._full is not None and self._full[0] < self._free[0]:
            patience = min(self._free[0] - self._full[1], longest_wait)
            if patience >= LEAST_WAIT:
                return Choice(self._full[2], patience)
        link = self._free[2]
        return Choice(link, fetching=self._fetching[link])
