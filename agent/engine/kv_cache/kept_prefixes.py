"""Prefixes that others can share: their tokens, their cells, what of them is parked.

Of running sequences as of ended ones. Those of ended ones are *kept*: they have numbers of their
own, and last as long as there is room.
"""

from collections.abc import Iterable, Sequence

from ..prompt import border
from ..step import Clear, Edit, Free
from .cells import Cells
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found, PrefixTree
from .residency import Residency


class KeptPrefixes:
    """Changes `cells` and `residency`, and records in `edits` what that means for llama.cpp's."""

    def __init__(self, cells: Cells, residency: Residency, edits: list[Edit]) -> None:
        self._cells = cells
        self._residency = residency
        self._edits = edits
        self._tree = PrefixTree()
        self._used_at: dict[int, int] = {}
        self._num_uses = 0

    def __contains__(self, holder: int) -> bool:
        return holder in self._used_at

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that somebody has."""
        return self._tree.find(keys, most=most, computed=self.num_computed, used_at=self._used_at)

    def keys(self, holder: int) -> list[int]:
        """What its cells contain."""
        return self._tree.keys(holder)

    def length(self, holder: int) -> int:
        """How many keys of it are known."""
        return self._tree.length(holder)

    def num_computed(self, holder: int) -> int:
        """Its cells, and what of it is parked."""
        return self._cells.length(holder) + self._residency.parked(holder)

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes."""
        return self._tree.marks

    def announce(self, holder: int, keys: Sequence[int], marks: Sequence[Mark] = ()) -> None:
        """Others may share what `holder` has, or is going to have."""
        self._tree.insert(holder, keys)
        self._tree.mark(holder, marks)
        self.use(holder)

    def extend(self, holder: int, keys: list[int]) -> None:
        """So it goes on."""
        self._tree.extend(holder, keys)

    def use(self, holder: int) -> None:
        """It was used."""
        self._num_uses += 1
        self._used_at[holder] = self._num_uses
        if holder in self._residency:
            self._residency.use(holder, self._tree.num_alone(holder, self._residency))

    def keep(self, slot: int, keys: list[int]) -> None:
        """`keys`, which `slot` has computed, become a kept prefix. There must be a free number."""
        holder = self._residency.put()
        self._tree.insert(holder, keys)
        if covering := self._kept(self._tree.others_with_all_of(holder)):
            self._tree.remove(holder)
            self._residency.remove(holder)
            self.use(max(covering))
            return
        self._edits += self._cells.keep(slot, holder, len(keys))
        self.drop_within(holder)
        self.use(holder)

    def drop_within(self, holder: int) -> None:
        """Kept prefixes go that `holder` begins with: it has all of them."""
        for within in self._kept(self._tree.others_within(holder)):
            self.drop(within)

    def parked_pieces(self, holder: int) -> tuple[tuple[int, int], ...]:
        """Blocks and cells of its parked pieces, in the order in which they follow its cells."""
        return self._residency.pieces(holder) if holder in self._residency else ()

    def pieces_to(self, found: Found) -> tuple[int, ...]:
        """Cells of the parked pieces that hold the rest of what was `found`."""
        if found.source is None:
            return ()
        end = self._cells.length(found.source)
        needed = []
        for _, length in self.parked_pieces(found.source):
            if end >= found.length:
                break
            needed.append(length)
            end += length
        return tuple(needed)

    def make_number(self) -> bool:
        """Whether there is a number for one more; the one that is worth least goes for it."""
        if not self._residency.has_free and (least := self._residency.least) is not None:
            self._residency.goes(least)
            self.drop(least)
        return self._residency.has_free

    def forget_parked(self, holder: int) -> None:
        """What is parked of it goes; what is in the cells stays."""
        if self._residency.parked(holder):
            self.shorten(holder, self._cells.length(holder))

    def shorten(self, holder: int, length: int) -> None:
        """A kept prefix has only its first `length` tokens, which are in the cells, or fewer.

        It does not end within media.
        """
        length = border(self._tree.keys(holder), length)
        if not length:
            self.drop(holder)
            return
        self._forget_blocks(self._residency.forget_parked(holder))
        self._cells.truncate(holder, length)
        self._edits.append(Clear(holder, length))
        self._tree.shorten(holder, length)

    def drop(self, holder: int) -> None:
        """A kept prefix goes, and its number is free."""
        self._forget_blocks(self._residency.remove(holder))
        self.forget(holder)

    def forget(self, holder: int) -> None:
        """`holder` gives up its cells, and nobody finds them any more."""
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        if holder in self._tree:
            self._tree.remove(holder)
            del self._used_at[holder]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._tree.check_integrity()
        for holder in self._residency:
            equal = self.num_computed(holder) == self._tree.length(holder) > 0
            if not equal or holder not in self._used_at:
                raise RuntimeError(f"prefixes out of order: kept prefix {holder}")

    def _forget_blocks(self, blocks: tuple[int, ...]) -> None:
        if blocks:
            self._edits.append(Free(blocks))

    def _kept(self, holders: Iterable[int]) -> list[int]:
        return [holder for holder in holders if holder in self._residency]
