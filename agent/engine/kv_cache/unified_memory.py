"""The memory of models whose sequences can drop their last tokens: prefixes can end anywhere.

Prefixes are shared by reference. If cells are needed, kept prefixes are moved to host memory. A
restore takes a hundredth of the time of computing.

With `is_compact`, kept prefixes are also parked when another sequence begins. On CPUs every
generated token passes over every cell in use, and after some thirty tokens that has cost as much
as parking. Prefixes are parked only when a sequence begins. If cells were freed during an answer,
later cells would be taken out of order, and llama.cpp's sums would differ slightly. Then the same
seed would not give the same text twice.

Prefixes are parked block by block from their end on, and restored from their beginning on. A
restored block stays parked, so its next eviction needs no copy. The `allowance` limits the cells
copied before the next step, because a running stream waits for the copies. If cells are needed
beyond that, a prefix that shares all of its cells with other prefixes is cut. A prompt that was
read from disk becomes a prefix in host memory.

Invariants, checked by `check_integrity`:

- a kept prefix is in the cells up to the beginning of a block, and parked from there on;
- the parked blocks after its cells are present.
"""

from collections.abc import Collection, Iterator, Sequence

from ..capacity import BLOCK
from ..integrity import check
from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Clear, Copy, Discard, Offload, Put, ReadOut, Restore
from .allowance import LEAST_IN_PIECE, MOST_IN_PIECE
from .cells import Cells
from .handed import Handed, HandOut, cells
from .memory import Memory, Policy
from .parked_blocks import ParkedBlocks
from .prefix_tree import Found

ENOUGH_AT_ONCE = 1024
"""Once this many cells are parked, no further prefix is parked when a sequence begins."""


class UnifiedMemory(Memory):
    """A memory whose prefixes can be cut at any token.

    Host memory has up to `most_parked` cells of kept prefixes, in blocks of `block` cells. With
    `is_compact`, prefixes are parked as soon as another sequence begins.
    """

    def __init__(
        self,
        *,
        slots: int,
        holders: int,
        num_cells: int,
        policy: Policy,
        most_parked: int,
        can_share: bool = True,
        block: int = BLOCK,
        is_compact: bool = False,
        cells: Cells | None = None,
    ) -> None:
        super().__init__(
            slots=slots,
            holders=holders,
            num_cells=num_cells,
            cells=cells or Cells(slots=slots),
            policy=policy,
            parked=ParkedBlocks(
                first=0, block=block, most_bytes=most_parked, cell_bytes=1, state_bytes=0
            ),
            can_share=can_share,
        )
        self._is_compact = is_compact

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """Return the needed cells. Blocks are restored whole, including the last one."""
        if found.source is None:
            return num_tokens
        present = min(found.length, self._cells.length(found.source))
        in_use = present - self._cells.num_not_in_use(found.source, present) if present else 0
        whole = present + sum(num for _, _, num in self._missing(found))
        return max(num_tokens, whole) - in_use

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        super().check_integrity()
        self._parked.check_integrity([])
        check(self._copies.keys() <= self._worth.keys(), "copies")
        check({*self._copies.values()} == {*self._parked}, "names")
        for holder in self._worth:
            away = self._away(holder)
            length = self._cells.length(holder) + sum(num for _, _, num in away)
            check(length == self._tree.length(holder), f"blocks of kept prefix {holder}")
            check(all(self._parked.is_here(id) for id, _, _ in away), f"{holder}: not here")

    # ---- to and from elsewhere

    def _num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """Count the tokens that `stored` and `keys` have in common."""
        if not stored.pieces or stored.checkpoints:
            return 0
        return stored.num_common(keys, most)

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """Park all pieces of `stored`, even beyond the limit of host memory."""
        if source is not None:
            self._use(source)
        if not self._make_number():
            return None
        if stored.start and (source is None or self._cells.length(source) < stored.start):
            return None  # `source` was evicted for the number
        holder, keys = self._free.pop(), stored.prompt.keys
        self._tree.insert(holder, keys)
        self._worth[holder] = 0.0
        if stored.start and source is not None:
            self._cells.share(source, holder, stored.start)
            self._edits.append(Copy(source, holder, stored.start))
        blocks: list[int] = []
        for part in self._parked.cut(keys[: stored.start]):
            blocks.append(self._parked.take(blocks, part, is_here=False))
        end = stored.start
        for piece in stored.pieces:
            part = tuple(keys[end : end + piece.num_tokens])
            blocks.append(self._parked.take(blocks, part, is_here=False))
            if not self._parked.is_here(blocks[-1]):
                self._parked.put(blocks[-1])
                self._edits.append(Put(blocks[-1], piece.state))
            end += piece.num_tokens
        self._copies[holder] = self._parked.add(blocks, 0.0)
        self._note_cells(holder)
        self._use(holder)
        self._drop_copies(0)
        while (surplus := self._parked.surplus(self._names(holder, source))) is not None:
            self._forget_parked(self._holder_of(surplus))
        if stored.start:
            self._drop_within(holder)
        return holder

    def hand_out(self, keys: Sequence[int], read: HandOut) -> list[Handed] | None:
        """Return parts of the cells, and of the parked blocks after them."""
        found, start = self.find(keys, len(keys)), read.num_read
        if found.source is None or found.length <= start:
            return None
        parts: list[Handed] = []
        for block, first, end in self._extents(found.source):
            end = min(end, found.length)
            while start < end:
                if not (count := self.allowance.take_some(end - start)):
                    return parts
                if block is None:
                    parts.append(cells(found.source, start, count, self._parked.new_number()))
                else:
                    parts.append(Handed("cells", count, (ReadOut(block, start - first, count),)))
                start += count
        return parts

    def _extents(self, holder: int) -> Iterator[tuple[int | None, int, int]]:
        """Yield the extents of a prefix: the block (`None` for cells), start and end."""
        yield None, 0, self._cells.length(holder)
        for block, start, num in self._away(holder):
            yield block, start, start + num

    # ---- a running sequence

    def _restore(self, found: Found) -> Found | None:
        """Restore as many blocks as are needed."""
        source = found.source
        if source is None or self._is_present(found):
            return found
        self._use(source)
        for block, start, num in self._missing(found):
            if self.allowance.num_moved and num > self.allowance.num_left:
                return None
            if self._make_room(num, sparing=source) < num:
                return None
            self._open(source)
            self.allowance.take(num)
            self._cells.grow(source, num)
            self._note_cells(source)
            self._edits.append(Restore(source, start, num, block))
        self._drop_copies(0)
        return found if self._is_present(found) else None

    def _begin(self, slot: int, found: Found) -> None:
        if self._is_compact:
            self._clear_the_way(sparing=found.source)
        if found.source is not None:
            self._cells.share(found.source, slot, found.length)
            self._edits.append(Copy(found.source, slot, found.length))

    def discard(self, slot: int, start: int | None = None, count: int | None = None) -> None:
        """Remove tokens of `slot`, from any position on if their cells are not shared."""
        start = self._cells.length(slot) if start is None else start
        if count is not None:
            self._cells.discard(slot, start, count)
            self._edits.append(Discard(slot, start, count))
            return
        if start < self._cells.length(slot):
            self._cells.truncate(slot, start)
        self._edits.append(Clear(slot, start))

    # ---- kept prefixes

    def _num_computed(self, holder: int) -> int:
        """Count the cells of a slot; for a kept prefix, all tokens, in the cells or parked."""
        return self._tree.length(holder) if holder in self._worth else self._cells.length(holder)

    def _cost(self, holder: int) -> int:
        return self._tree.num_alone(holder, self._worth)

    def _keep(self, slot: int, *, is_over: bool) -> None:
        """Keep what `slot` computed, unless another prefix has it already."""
        if not self._make_number():
            return
        self._catch_up(slot)
        keys = self._tree.keys(slot)
        length = border(keys, min(self._cells.length(slot), len(keys)))
        if not length:
            return
        holder = self._free.pop()
        self._tree.insert(holder, keys[:length])
        if covering := self._tree.others_with_all_of(holder) & self._worth.keys():
            self._tree.remove(holder)
            self._free.append(holder)
            self._use(max(covering))
            return
        self._edits += self._cells.keep(slot, holder, length)
        self._worth[holder] = 0.0
        self._use(holder)
        self._drop_within(holder)

    def _drop_within(self, holder: int) -> None:
        """Remove kept prefixes with which `holder` begins, since `holder` has their cells and
        blocks.
        """
        within = self._tree.others_within(holder) & self._worth.keys()
        if within & self._copies.keys():
            self._name(holder)
        for one in within:
            self._drop(one)

    def _numbered(self) -> Collection[int]:
        """Return the parked prefixes, or all kept prefixes if no prefix is parked."""
        return [one for one in self._worth if self._away(one)] or self._worth

    def _forget_parked(self, holder: int) -> None:
        """Remove the parked part of `holder`. Its cells stay."""
        if self._away(holder):
            self._shorten(holder, self._cells.length(holder))
        else:
            self._forget_blocks(holder)

    def _shorten(self, holder: int, length: int) -> None:
        """Cut a kept prefix to at most its first `length` tokens, which are in the cells.

        The cut does not fall within media.
        """
        length = border(self._tree.keys(holder), length)
        if not length:
            self._drop(holder)
            return
        self._forget_blocks(holder)
        self._cells.truncate(holder, length)
        self._edits.append(Clear(holder, length))
        self._tree.shorten(holder, length)

    def _drop(self, holder: int) -> None:
        self._forget_blocks(holder)
        super()._drop(holder)

    def _forget_blocks(self, holder: int) -> None:
        if (name := self._copies.pop(holder, None)) is not None:
            self._free_blocks(self._parked.remove(name))

    def _name(self, holder: int, start: int | None = None) -> int:
        """Return the name of `holder` in host memory; the last block of a new one is at `start`."""
        name = self._copies.get(holder)
        if name is None:
            keys, blocks = self._tree.keys(holder), list[int]()
            rest = [] if start is None else [tuple(keys[start:])]
            for part in [*self._parked.cut(keys[:start]), *rest]:
                blocks.append(self._parked.take(blocks, part, is_here=False))
            name = self._copies[holder] = self._parked.add(blocks, self._worth[holder])
            self._note_cells(holder)
        return name

    def _note_cells(self, holder: int) -> None:
        """Note how much of a parked prefix is in the cells."""
        self._parked.in_cells(self._copies[holder], self._cells.length(holder))

    def _names(self, *holders: int | None) -> set[int]:
        return {self._copies[one] for one in holders if one in self._copies}

    def _holder_of(self, name: int) -> int:
        return next(one for one, copy in self._copies.items() if copy == name)

    def _drop_copies(self, count: int) -> bool:
        """Remove blocks whose cells are present, until host memory has room for `count` cells.

        Returns whether there is room. The prefixes with the most worth lose their copies first.
        """
        parked = self._parked
        if parked.num_bytes + count <= parked.most_bytes:
            return True
        needed = {id for holder in self._copies for id, _, _ in self._away(holder)}
        for holder in reversed(self._by_worth()):
            name = self._copies.get(holder)
            for id, _, _ in parked.blocks(name) if name is not None else ():
                if parked.num_bytes + count <= parked.most_bytes:
                    return True
                if parked.is_here(id) and id not in needed:
                    parked.drop(id)
                    self._free_blocks((id,))
        return parked.num_bytes + count <= parked.most_bytes

    def _away(self, holder: int) -> list[tuple[int, int, int]]:
        """Return the blocks that are not in the cells: id, start, and number of positions."""
        name, end = self._copies.get(holder), self._cells.length(holder)
        if name is None or end == self._parked.length(name):
            return []
        return [block for block in self._parked.blocks(name) if block[1] >= end]

    def _missing(self, found: Found) -> list[tuple[int, int, int]]:
        """Return the blocks to restore before a sequence can begin with `found`."""
        away = [] if found.source is None else self._away(found.source)
        return [block for block in away if block[1] < found.length]

    def _is_present(self, found: Found) -> bool:
        """Return whether the prefix `found` is in the cells."""
        return found.source is None or self._cells.length(found.source) >= found.length

    def _open(self, holder: int) -> None:
        """Prepare `holder` to get cells."""

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict prefixes from their ends on, starting with the prefix of least worth."""
        return self._make_room(count, num_urgent=count if num_urgent is None else num_urgent)

    def lose(self, holder: int) -> tuple[int, ...]:
        """Drop `holder`, and the parked parts of all prefixes that share blocks with it."""
        lost: list[int] = []
        if (name := self._copies.get(holder)) is not None:
            lost = [self._holder_of(one) for one in self._parked.relatives(name)]
        for one in lost:
            self._forget_parked(one)
        if holder in self._worth:
            self._drop(holder)
        return tuple(lost)

    def _make_room(self, count: int, *, num_urgent: int = 0, sparing: int | None = None) -> int:
        while (num_missing := count - self.room.num_free) > 0:
            num_left = max(0, num_urgent - self.room.num_free)
            if not self._evict(num_missing, num_urgent=num_left, sparing=sparing):
                break
        return self.room.num_free

    def _evict(self, num_missing: int, *, num_urgent: int, sparing: int | None) -> bool:
        """Free some of the `num_missing` cells, and `num_urgent` of them at any cost.

        Returns false if no more may be copied before this step. Raises `RuntimeError` if nothing
        can be evicted.
        """
        holder = self._next_to_go(sparing=sparing)
        if holder is None:
            raise RuntimeError(f"{num_missing} cells more asked for than are available")
        self._policy.went(self._worth[holder])
        length, num_alone = self._cells.length(holder), self._cells.num_alone(holder)
        start = self._last_block(holder)
        may_copy = not self.allowance.num_moved or length - start <= self.allowance.num_left
        if self._is_parked(holder, start):
            self._retreat(holder, start)
        elif num_urgent and not may_copy and not num_alone:
            # Parking it would free nothing, and go on until all who share these cells are parked.
            self._shorten(holder, length - self._num_not_in_use(holder))
        elif not self._make_host_room(holder, length - start, sparing=sparing):
            evictable = num_alone or self._num_not_in_use(holder)
            least = max(num_missing, LEAST_IN_PIECE)
            self._shorten(holder, length - min(evictable, least, MOST_IN_PIECE))
        elif num_urgent or may_copy:
            self._park(holder, start)
        else:
            return False
        return True

    def _clear_the_way(self, *, sparing: int | None) -> None:
        """Park about `ENOUGH_AT_ONCE` cells of prefixes that the new sequence does not need."""
        if not self._parked.most_bytes:
            return
        begun = self.allowance.num_moved
        for holder in sorted(self._cells.kept_alone - {sparing}, key=self._worth.__getitem__):
            if self.allowance.num_moved - begun >= ENOUGH_AT_ONCE:
                return
            # Parking the first block copies cells that others have, too, such as the first token's.
            while (length := self._cells.length(holder)) and (
                length - (start := self._last_block(holder)) <= 2 * self._cells.num_alone(holder)
            ):
                count, most = length - start, self.allowance.num_left
                if self._is_parked(holder, start):
                    self._retreat(holder, start)
                elif count <= most and self._make_host_room(holder, count, sparing=sparing):
                    self._park(holder, start)
                else:
                    break

    def _last_block(self, holder: int) -> int:
        """Return where the last block of its cells begins.

        Before anything of `holder` is parked, a block ends where its cells are shared.
        """
        length, num_alone = self._cells.length(holder), self._cells.num_alone(holder)
        if (name := self._copies.get(holder)) is None:
            start = max(0, length - 1) // self._parked.block * self._parked.block
            return max(start, length - num_alone) if num_alone else start
        starts = (start for _, start, _ in self._parked.blocks(name) if start < length)
        return max(starts, default=0)

    def _is_parked(self, holder: int, start: int) -> bool:
        """Return whether the block of `holder` that begins at `start` is parked already."""
        if (name := self._copies.get(holder)) is None:
            return False
        return any(
            at == start and self._parked.is_here(id) for id, at, _ in self._parked.blocks(name)
        )

    def _make_host_room(self, holder: int, count: int, *, sparing: int | None) -> bool:
        """Make room in host memory for the last `count` cells of `holder`.

        Copies of present cells are removed first, then prefixes of less worth. Returns whether
        there is room.
        """
        parked = self._parked
        if self._num_computed(holder) > parked.most_bytes:
            return False
        if self._drop_copies(count):
            return True
        spared = self._names(holder, sparing)
        going = parked.in_the_way(count, self._worth[holder], sparing=spared)
        for one in going or ():
            gone = self._holder_of(one)
            self._policy.went(self._worth[gone])
            self._forget_parked(gone)
        return going is not None

    def _park(self, holder: int, start: int) -> None:
        """Park the last block of `holder`, which begins at `start`."""
        name, count = self._name(holder, start), self._cells.length(holder) - start
        block = next(id for id, at, _ in self._parked.blocks(name) if at == start)
        if not self._parked.is_here(block):
            self._parked.put(block)
            self._edits.append(Offload(holder, start, count, block))
            self.allowance.take(count)
        self._retreat(holder, start)

    def _retreat(self, holder: int, start: int) -> None:
        """Remove the cells of the last block of `holder`, which is parked."""
        self._cells.truncate(holder, start)
        self._note_cells(holder)
        self._edits.append(Clear(holder, start))
