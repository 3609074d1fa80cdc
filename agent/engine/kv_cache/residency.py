"""Where prefixes of ended sequences are: in the KV cache, or parked in host memory.

They stand in the order of their last use.

Invariants, checked by `check_integrity`:
- a number is free, resident or parked;
- the parked ones have no more cells than may be parked.
"""

from collections.abc import Iterable, Iterator


class Residency:
    """`holders` are the numbers for kept prefixes; `most_parked` bounds the parked cells."""

    def __init__(self, holders: Iterable[int], *, most_parked: int) -> None:
        self.num_parked = 0
        self._most_parked = most_parked
        self._free = list(holders)
        self._resident: dict[int, None] = {}
        self._parked: dict[int, int] = {}  # with its cells

    def __contains__(self, holder: int) -> bool:
        return holder in self._resident or holder in self._parked

    def __iter__(self) -> Iterator[int]:
        yield from self._resident
        yield from self._parked

    @property
    def has_free(self) -> bool:
        """Whether there is a number for one more."""
        return bool(self._free)

    @property
    def oldest(self) -> int | None:
        """The one to go when there are no more numbers: parked rather than resident."""
        return next(iter(self._parked), self.oldest_resident)

    @property
    def oldest_resident(self) -> int | None:
        """The resident one that was not used for the longest time."""
        return next(iter(self._resident), None)

    def length_parked(self, holder: int) -> int | None:
        """Cells of a parked one; `None` where it is not parked."""
        return self._parked.get(holder)

    def residents(self) -> tuple[int, ...]:
        """The resident ones, the one that was not used for the longest time first."""
        return tuple(self._resident)

    def put(self) -> int:
        """A number for one more, resident."""
        holder = self._free.pop()
        self._resident[holder] = None
        return holder

    def touch(self, holder: int) -> None:
        """It was used."""
        if holder in self._resident:
            del self._resident[holder]
            self._resident[holder] = None
        elif holder in self._parked:
            self._parked[holder] = self._parked.pop(holder)

    def remove(self, holder: int) -> None:
        """It is gone, and its number free."""
        if holder in self._parked:
            self.num_parked -= self._parked.pop(holder)
        else:
            del self._resident[holder]
        self._free.append(holder)

    def in_the_way(self, length: int, *, sparing: int | None) -> list[int] | None:
        """The parked ones that have to go before `length` cells can be parked; `None`: in vain.

        `sparing` is one that is in use right now.
        """
        excess = self.num_parked + length - self._most_parked
        going = []
        for holder, cells in self._parked.items():
            if excess <= 0:
                break
            if holder != sparing:
                going.append(holder)
                excess -= cells
        return going if excess <= 0 else None

    def park(self, holder: int, length: int) -> None:
        """It has gone to host memory, with its `length` cells."""
        del self._resident[holder]
        self._parked[holder] = length
        self.num_parked += length

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        numbers = [*self._free, *self._resident, *self._parked]
        if len(set(numbers)) != len(numbers):
            raise RuntimeError(f"prefixes out of order: {numbers}")
        if not sum(self._parked.values()) == self.num_parked <= self._most_parked:
            raise RuntimeError(f"prefixes out of order: {self.num_parked} cells parked")
