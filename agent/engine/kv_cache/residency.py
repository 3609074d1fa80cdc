"""Kept prefixes by their worth, and what of each is parked in host memory.

A prefix is parked from its end on, piece by piece, and comes back in the opposite order. So it is
in the cells up to some position, and parked from there on.

Invariants, checked by `check_integrity`:
- a number is free, or holds a prefix;
- no more is parked than may be, unless a prefix that was read from disk takes more by itself.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Protocol


class Policy(Protocol):
    """Says what goes first: what is worth least."""

    def worth(self, num_tokens: int) -> float:
        """What a prefix is worth that is used now: without it `num_tokens` are computed again."""

    def went(self, worth: float) -> None:
        """A prefix of this worth had to go."""


class Residency:
    """`holders` are the numbers for kept prefixes; `most_parked` bounds the parked cells.

    Prefixes that are worth least by the `policy` are evicted first.
    """

    def __init__(self, holders: Iterable[int], *, most_parked: int, policy: Policy) -> None:
        self._policy = policy
        self.worth: dict[int, float] = {}
        """What each was worth when it was used last."""
        self.num_parked = 0
        self.most_parked = most_parked
        self._free = list(holders)
        self._blocks = count()
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        """Block and cells of each parked piece, the last one parked at the end."""
        self._adopted: set[int] = set()

    def __contains__(self, holder: object) -> bool:
        return holder in self._pieces

    def __iter__(self) -> Iterator[int]:
        """The one that is worth least first."""
        return iter(sorted(self._pieces, key=self.worth.__getitem__))

    @property
    def has_free(self) -> bool:
        """Whether there is a number for one more."""
        return bool(self._free)

    @property
    def least(self) -> int | None:
        """The one to go when there are no more numbers: one that is parked, before others."""
        parked = [holder for holder, pieces in self._pieces.items() if pieces]
        return min(parked or self._pieces, key=self.worth.__getitem__, default=None)

    def parked(self, holder: int) -> int:
        """How many cells of it are parked."""
        return sum(length for _, length in self._pieces.get(holder, ()))

    def pieces(self, holder: int) -> tuple[tuple[int, int], ...]:
        """Blocks and cells of its parked pieces, in the order in which they come back."""
        return tuple(reversed(self._pieces[holder]))

    def new_block(self) -> int:
        """A number for a block."""
        return next(self._blocks)

    def put(self) -> int:
        """A number for one more."""
        holder = self._free.pop()
        self._pieces[holder] = []
        self.use(holder, 0)
        return holder

    def use(self, holder: int, num_tokens: int) -> None:
        """It was used. Without it `num_tokens` would be computed again."""
        self.worth[holder] = self._policy.worth(num_tokens)

    def goes(self, holder: int) -> None:
        """All of it or a part has to go, for others."""
        self._policy.went(self.worth[holder])

    def remove(self, holder: int) -> tuple[int, ...]:
        """It is gone, and its number free; the blocks that nobody needs now."""
        blocks = self.forget_parked(holder)
        del self._pieces[holder], self.worth[holder]
        self._free.append(holder)
        return blocks

    def in_the_way(self, length: int, *, sparing: Iterable[int]) -> list[int] | None:
        """Those whose parked pieces have to go before `length` cells can be parked.

        `None`: in vain. `sparing` are in use right now.
        """
        excess = self.num_parked + length - self.most_parked
        going = []
        for holder in self if excess > 0 else ():
            if excess <= 0:
                break
            if (parked := self.parked(holder)) and holder not in sparing:
                going.append(holder)
                excess -= parked
        return going if excess <= 0 else None

    def park(self, holder: int, length: int) -> int:
        """A piece of it, `length` cells, goes to host memory: as which block."""
        block = self.new_block()
        self._pieces[holder].append((block, length))
        self.num_parked += length
        return block

    def adopt(self, holder: int, lengths: Iterable[int]) -> list[int]:
        """It was read from disk: all of its pieces are parked, however many they are: as blocks."""
        self._adopted.add(holder)
        return [self.park(holder, length) for length in reversed(tuple(lengths))][::-1]

    def restore(self, holder: int) -> tuple[int, int]:
        """Its next piece comes back: the block that is not needed then, and its cells."""
        block, length = self._pieces[holder].pop()
        self.num_parked -= length
        return block, length

    def forget_parked(self, holder: int) -> tuple[int, ...]:
        """What it has parked is given up: the blocks that nobody needs now."""
        self.num_parked -= self.parked(holder)
        blocks = tuple(block for block, _ in self._pieces[holder])
        self._pieces[holder].clear()
        self._adopted.discard(holder)
        return blocks

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        numbers = [*self._free, *self._pieces]
        if len(set(numbers)) != len(numbers):
            raise RuntimeError(f"prefixes out of order: {numbers}")
        if sum(map(self.parked, self._pieces)) != self.num_parked:
            raise RuntimeError(f"prefixes out of order: {self.num_parked} cells parked")
        if self.num_parked > max(self.most_parked, *map(self.parked, self._adopted), 0):
            raise RuntimeError(f"prefixes out of order: {self.num_parked} cells parked")
