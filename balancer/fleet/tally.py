"""A counter that drops a key when its count reaches zero.

Invariant: every count is positive.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Tally(Generic[K]):
    """A count of at least one for each key."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._counts)

    def __contains__(self, key: object) -> bool:
        return key in self._counts

    def __getitem__(self, key: K) -> int:
        """Return the count of a key, or 0 if the key is unknown."""
        return self._counts.get(key, 0)

    def __iter__(self) -> Iterator[K]:
        """The keys, in no order."""
        return iter(self._counts)

    def add(self, key: K, amount: int) -> None:
        """Add `amount` to the count. Raises `RuntimeError` if the count would be negative."""
        count = self._counts.get(key, 0) + amount
        if count < 0:
            raise RuntimeError(f"the count of {key} is negative")
        if count:
            self._counts[key] = count
        else:
            self._counts.pop(key, None)
