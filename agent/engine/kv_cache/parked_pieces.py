"""What of kept prefixes is parked in host memory, if they can end anywhere.

A prefix is parked from its end on, piece by piece, and comes back in the opposite order. So it is
in the cells up to some position, and parked from there on.

Invariant, checked by `check_integrity`: no more is parked than may be, unless a prefix that was
read from disk takes more by itself.
"""

from collections.abc import Collection, Iterable
from itertools import count


class ParkedPieces:
    """Pieces of kept prefixes, by the prefixes' numbers; at most `most_parked` cells."""

    def __init__(self, *, most_parked: int) -> None:
        self.num_parked = 0
        self.most_parked = most_parked
        self._blocks = count()
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        """Block and cells of each parked piece, the last one parked at the end."""
        self._adopted: set[int] = set()

    def length(self, holder: int) -> int:
        """How many cells of it are parked."""
        return sum(length for _, length in self._pieces.get(holder, ()))

    def pieces(self, holder: int) -> tuple[tuple[int, int], ...]:
        """Blocks and cells of its parked pieces, in the order in which they come back."""
        return tuple(reversed(self._pieces.get(holder, ())))

    def new_block(self) -> int:
        """A number for a block."""
        return next(self._blocks)

    def in_the_way(
        self, length: int, *, among: Iterable[int], sparing: Collection[int | None]
    ) -> list[int] | None:
        """Whose pieces have to go before `length` cells can be parked: the first ones `among` all.

        `None`: in vain. `sparing` are in use right now.
        """
        excess = self.num_parked + length - self.most_parked
        going = []
        for holder in among if excess > 0 else ():
            if excess <= 0:
                break
            if (parked := self.length(holder)) and holder not in sparing:
                going.append(holder)
                excess -= parked
        return going if excess <= 0 else None

    def park(self, holder: int, length: int) -> int:
        """A piece of it, `length` cells, goes to host memory: as which block."""
        block = self.new_block()
        self._pieces.setdefault(holder, []).append((block, length))
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

    def forget(self, holder: int) -> tuple[int, ...]:
        """What it has parked is given up: the blocks that nobody needs now."""
        self.num_parked -= self.length(holder)
        self._adopted.discard(holder)
        return tuple(block for block, _ in self._pieces.pop(holder, ()))

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        is_sum = sum(map(self.length, self._pieces)) == self.num_parked
        most = max(self.most_parked, *map(self.length, self._adopted), 0)
        if not is_sum or self.num_parked > most:
            raise RuntimeError(f"parked pieces out of order: {self.num_parked} cells parked")
