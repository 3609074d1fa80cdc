"""Caches of their own: which holder has which stream, and how busy ones come to lie side by side.

llama.cpp computes a batch in one piece only where the streams in it have consecutive numbers;
otherwise each piece reads all weights again. So where a hole opens between busy streams, two
streams change their contents.

Invariant: a stream has at most one owner, and a holder at most one stream.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import accumulate


class Streams:
    """`count` streams, none of which has an owner at first."""

    def __init__(self, count: int) -> None:
        self._owners: list[int | None] = [None] * count
        self._numbers: dict[int, int] = {}

    def __contains__(self, holder: int) -> bool:
        return holder in self._numbers

    def __getitem__(self, holder: int) -> int:
        """The stream of `holder`."""
        return self._numbers[holder]

    @property
    def has_free(self) -> bool:
        """Whether there is one without an owner."""
        return len(self._numbers) < len(self._owners)

    def put(self, holder: int, *, beside: Iterable[int]) -> int:
        """Give `holder` a free stream, as near as can be to those of the holders `beside`."""
        busy = [self._numbers[one] for one in beside]
        free = [number for number, owner in enumerate(self._owners) if owner is None]
        number = min(free, key=lambda one: (max((*busy, one)) - min((*busy, one)), one))
        self._owners[number] = holder
        self._numbers[holder] = number
        return number

    def hand_over(self, source: int, holder: int) -> None:
        """The stream of `source` is that of `holder` now, which has none."""
        if holder in self._numbers:
            raise ValueError(f"holder {holder} has a stream already")
        number = self._numbers[holder] = self._numbers.pop(source)
        self._owners[number] = holder

    def remove(self, holder: int) -> None:
        """`holder` gives its stream up."""
        self._owners[self._numbers.pop(holder)] = None

    def swap(self, first: int, second: int) -> None:
        """Two streams, given by their numbers, change their owners."""
        owners = self._owners
        owners[first], owners[second] = owners[second], owners[first]
        for number in (first, second):
            if (owner := owners[number]) is not None:
                self._numbers[owner] = number

    def swaps(
        self, busy: Collection[int], length: Callable[[int], int]
    ) -> list[tuple[int, int, int]]:
        """Which streams have to change contents before those of `busy` holders lie side by side.

        Each with how many cells that copies, where a holder has `length` cells: as few as can be.
        """
        inside = {self._numbers[one] for one in busy}
        if not inside or max(inside) - min(inside) < len(inside):
            return []
        weights = [0 if owner is None else length(owner) for owner in self._owners]
        start = _cheapest_window(weights, inside)
        window = set(range(start, start + len(inside)))
        pairs = zip(sorted(inside - window), sorted(window - inside), strict=True)
        return [(one, other, weights[one] + weights[other]) for one, other in pairs]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        owned = {owner: i for i, owner in enumerate(self._owners) if owner is not None}
        if owned != self._numbers:
            raise RuntimeError(f"streams out of order: {self._owners}, {self._numbers}")


def _cheapest_window(weights: list[int], inside: Collection[int]) -> int:
    """The first of as many numbers as are `inside`, where moving those in copies fewest cells.

    Who is to be inside and is already, costs nothing; who is not to be has to go.
    """
    prices = [-weight if i in inside else weight for i, weight in enumerate(weights)]
    sums = [0, *accumulate(prices)]
    size = len(inside)
    return min(range(len(weights) - size + 1), key=lambda start: sums[start + size] - sums[start])
