"""Where prefixes of ended sequences are: in the KV cache, or parked in host memory.

They stand in the order of their last use. A resident one is at hand, but not free: every token that
is generated passes over every cell in use, whoever holds it. Parking one costs as much as some
hundred generated tokens passing over it, and getting it back the same again, far less than
computing it; so it is parked once it has cost that. Who rents for as long as buying costs never
pays more than twice what would have been best.

Invariants, checked by `check_integrity`:
- a number is free, resident or parked;
- the parked ones have no more cells than may be parked.
"""

from collections.abc import Iterable, Iterator

PARK_AFTER = 32
"""Generated tokens after which a prefix that nobody used is parked.

Passing over a cell costs a token 4 ns in each head of each layer, moving the cell's content to host
memory half a microsecond a layer: 28 layers of 16 heads measured 0.9 and 30 microseconds (with
fresh pages, otherwise 16) on two cores; 6 layers of 4 heads 0.02 and 2.
"""


class Shelf:
    """`holders` are the numbers for kept prefixes; `most_parked` bounds the parked cells."""

    def __init__(self, holders: Iterable[int], *, most_parked: int) -> None:
        self.num_parked = 0
        self._most_parked = most_parked
        self._free = list(holders)
        self._resident: dict[int, int] = {}  # with the generated tokens at its last use
        self._parked: dict[int, int] = {}  # with its cells
        self._next_look = PARK_AFTER

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

    def put(self, now: int) -> int:
        """A number for one more, resident; `now` counts generated tokens."""
        holder = self._free.pop()
        self._resident[holder] = now
        return holder

    def touch(self, holder: int, now: int) -> None:
        """It was used."""
        if holder in self._resident:
            del self._resident[holder]
            self._resident[holder] = now
        elif holder in self._parked:
            self._parked[holder] = self._parked.pop(holder)

    def remove(self, holder: int) -> None:
        """It is gone, and its number free."""
        if holder in self._parked:
            self.num_parked -= self._parked.pop(holder)
        else:
            del self._resident[holder]
        self._free.append(holder)

    def idle(self, now: int) -> list[int]:
        """The resident ones that should be parked; each is named once in a while."""
        if now < self._next_look:
            return []
        idle = [holder for holder, use in self._resident.items() if use <= now - PARK_AFTER]
        for holder in idle:
            self._resident[holder] = now
        self._next_look = PARK_AFTER + min(self._resident.values(), default=now)
        return idle

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
            raise RuntimeError(f"shelf out of order: {numbers}")
        if not sum(self._parked.values()) == self.num_parked <= self._most_parked:
            raise RuntimeError(f"shelf out of order: {self.num_parked} cells parked")
