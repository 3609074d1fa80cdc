"""The best of the agents that are compared for one request, and whether to wait for it."""

from typing import NamedTuple

from ..decisions import LinkId
from .cost import Load
from .fetches import Fetching

LEAST_WAIT = 0.005
"""Waiting that saves fewer seconds is not worth a timer."""


class Choice(NamedTuple):
    """`link` is best. If it has no free slot, it is worth waiting `patience` seconds for it.

    A prefix that another agent has is worth `fetching`.
    """

    link: LinkId
    patience: float = 0.0
    fetching: Fetching | None = None


class Best:
    """The best of the agents looked at, with and without a free slot."""

    def __init__(self) -> None:
        self._free: tuple[float, float, LinkId] | None = None
        self._full: tuple[float, float, LinkId] | None = None
        self._fetching: dict[LinkId, Fetching | None] = {}

    def look(
        self, link: LinkId, load: Load, cost: float, wait: float, fetching: Fetching | None
    ) -> None:
        """Look at one where the request costs so many seconds, besides those that it waits."""
        self._fetching[link] = fetching
        if load.has_free_slot:
            seen = (cost, load.running / load.slots, link)
            self._free = seen if self._free is None else min(self._free, seen)
        else:
            seen = (cost + wait, cost, link)
            self._full = seen if self._full is None else min(self._full, seen)

    def choice(self, longest_wait: float) -> Choice | None:
        """The free one, unless another costs less although it has to be waited for."""
        if self._free is None:
            return None
        if self._full is not None and self._full[0] < self._free[0]:
            patience = min(self._free[0] - self._full[1], longest_wait)
            if patience >= LEAST_WAIT:
                return Choice(self._full[2], patience)
        link = self._free[2]
        return Choice(link, fetching=self._fetching[link])
