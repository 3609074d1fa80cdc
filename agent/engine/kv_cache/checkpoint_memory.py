"""One KV cache for all sequences of a model whose sequences cannot drop their last tokens.

A sliding window loses the cells behind it, and a recurrent state cannot go back. So another
sequence can begin with computed tokens only at the present position of a sequence, or at a
*checkpoint*. A checkpoint is a holder that shared all cells of a sequence when it was taken, and
does not grow. llama.cpp copies a recurrent state when the sequence goes on from it; cells with two
owners outlive the window.

Checkpoints are taken

- where a prompt differs from another known prompt: the next prompt with this beginning finds it;
- where another sequence waits for a part of a prompt that is being read;
- where messages begin, if the request says so, and every `EVERY` tokens;
- before the last token of a prompt, for the same prompt again;
- at the end of an answer, for the next turn, and where a sequence is preempted.

A part of a prompt that is read at once ends at such a position (`next_border`).

Rejected drafts of a sequence's last step can be taken back (`discard`). Until the sequence goes
on, the recurrent state after that belongs to this sequence alone. A sequence that begins with the
state before that gets a copy (`Copy.is_rolled_back`).

If numbers or cells run short, the checkpoints whose loss costs least are evicted first. They are
*parked* in host memory (`parked_blocks`), unless everything there is worth more. They are copied
piece by piece before the eviction, and a little ahead of need, so that no sequence waits for the
copies longer than the `allowance` says. A checkpoint that cannot be copied in time is lost. A
parked checkpoint is restored the same way, under a new number, and stays parked, so its next
eviction needs no copy.

The cost of a checkpoint is the number of tokens since the checkpoint before it.

Invariants, checked by `check_integrity`:

- a checkpoint has the cells of all its keys, and does not end within media;
- a parked checkpoint is in the tree, unless a checkpoint with the same keys has cells.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import ceil
from typing import Literal

from ..capacity import BLOCK
from ..integrity import check
from ..prompt import border
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import (
    Clear,
    Copy,
    Edit,
    Offload,
    OffloadState,
    Put,
    ReadOut,
    Restore,
    RestoreState,
)
from .cells import Cells
from .handed import Handed, HandOut, cells, state
from .memory import Memory, Policy
from .parked_blocks import Keys, ParkedBlocks
from .prefix_tree import Found, Mark

LEAST_GAIN = 8
"""Minimum tokens of an answer between the last checkpoint and a checkpoint at the answer's end."""

EVERY = 2048
"""Tokens of a long prompt between two checkpoints that are taken in any case."""

NUM_AHEAD = 2
"""Checkpoints that are copied ahead of their eviction."""

AHEAD = 8
"""The part of cells (1/8) that should be free, or belong to parked checkpoints."""

RESERVE = 16
"""Number of steps for whose streams cells are reserved while checkpoints are copied.

Prompts do not get these cells: cells that are needed at once cannot wait for the copies.
"""


@dataclass(slots=True)
class _Parking:
    """A checkpoint that is being copied: its `blocks` so far, and the keys that are `left`."""

    left: list[Keys]
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Restoring:
    """The checkpoint `name` that is being restored as `holder`, as long as a sequence waits for
    it.
    """

    name: int
    holder: int
    is_wanted: bool = True


class CheckpointMemory(Memory):
    """A memory whose kept prefixes are checkpoints.

    Checkpoints that no sequence asks for are at least `gap` tokens apart, since computing fewer
    tokens takes a moment. `most_parked` bytes of host memory hold further checkpoints, in blocks
    of `block` cells of `cell_bytes`, and states of `state_bytes`. If `state_bytes` is 0, no
    checkpoint can be copied. A restored checkpoint shares no cells of the `window` before its end.
    With `copies_state`, small windows cannot be shared. Then a checkpoint gets a copy of the state
    when it is taken, and so does a sequence that begins with the checkpoint.
    """

    can_cut = False

    def __init__(
        self,
        *,
        slots: int,
        holders: int,
        num_cells: int,
        policy: Policy,
        gap: int,
        most_parked: int = 0,
        block: int = BLOCK,
        cell_bytes: int = 1,
        state_bytes: int = 1,
        window: int = 0,
        copies_state: bool = False,
    ) -> None:
        super().__init__(
            slots=slots,
            holders=holders,
            num_cells=num_cells,
            cells=Cells(slots=slots),
            policy=policy,
            parked=ParkedBlocks(
                first=holders,
                block=block,
                most_bytes=most_parked,
                cell_bytes=cell_bytes,
                state_bytes=state_bytes,
            ),
        )
        self._gap = gap
        self._can_move = state_bytes > 0
        self._window = window
        self._copies_state = copies_state
        self._state_cells = ceil(state_bytes / cell_bytes)
        """The number of cells whose copy takes as long as the copy of a state."""
        self._parking: dict[int, _Parking] = {}
        self._restoring: _Restoring | None = None
        self._adopted: deque[tuple[int, ...]] = deque()
        """Names of adopted checkpoints; sequences may be waiting for the latest names."""
        self._began_with: dict[int, int] = {}
        self._rolled_back: set[int] = set()
        """Slots that dropped rejected drafts after their last computed token."""

    # ---- counts

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """Return the needed cells; a sequence shares no cells with a parked checkpoint."""
        if found.source is None or found.source in self._parked:
            return num_tokens
        num_not_in_use = self._cells.num_not_in_use(found.source, found.length)
        return num_tokens - found.length + num_not_in_use

    def _restore(self, found: Found) -> Found | None:
        """Restore a parked checkpoint under another number. Only one checkpoint is restored at a
        time.
        """
        name = found.source
        if name is None or name not in self._parked:
            return found
        if self._restoring is None and not self._begin_restoring(name):
            return None
        restoring = self._restoring
        if restoring is None or restoring.name != name:
            return None
        restoring.is_wanted = True
        holder = restoring.holder
        for id, start, num in self._parked.blocks(name):
            if start < self._cells.length(holder):
                continue
            if not self._make_room(num) or not self.allowance.has_room(num):
                return None
            self._edits.append(Restore(holder, start, num, id))
            self.allowance.take(num)
            self._cells.grow(holder, num)
        if not self.allowance.has_room(self._state_cells):
            return None
        length = self._parked.length(name)
        self._edits.append(RestoreState(holder, length, name, self._state_cells))
        self.allowance.take(self._state_cells)
        self._restored(restoring)
        return Found(length, holder)

    def _num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """Return the length of the last checkpoint of `stored` on `keys`."""
        if not self._may_copy:
            return 0
        common = stored.num_common(keys, most)
        lengths = [one.length for one in stored.checkpoints if self._suits(stored, one.length)]
        return max((length for length in lengths if length <= common), default=0)

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """Return the lengths of all checkpoints on `keys`, in ascending order."""
        return tuple(sorted({length for length, _ in self._on(keys)}))

    def hand_out(self, keys: Sequence[int], read: HandOut) -> list[Handed] | None:
        """Return whole blocks, and then the last checkpoints on `keys`, the shortest first.

        Each checkpoint comes with the cells after its last whole block.
        """
        ends = sorted(dict(self._on(keys)).items())[-read.most_checkpoints :]
        done = read.checkpoints[-1].length if read.checkpoints else read.start
        if not self._may_copy or not ends or ends[-1][0] <= done:
            return None
        block, (end, last) = self._parked.block, ends[-1]
        parts: list[Handed] = []
        for start in range(read.num_read, (end - 1) // block * block, block):
            if not self._hand_cells(parts, last, start, block, "cells"):
                return parts
        for length, one in ends:
            if length > done and not self._hand_state(parts, length, one):
                return parts
        return parts

    def _hand_cells(
        self, parts: list[Handed], one: int, start: int, count: int, kind: Literal["cells", "tail"]
    ) -> bool:
        """Add `count` cells of a checkpoint to `parts`. Returns whether they may be copied now."""
        if (name := self._name(one)) is not None:
            parts.append(Handed(kind, count, (ReadOut(self._parked.block_at(name, start)),)))
        elif self.allowance.has_room(count):
            self.allowance.take(count)
            parts.append(cells(one, start, count, self._parked.new_number(), kind))
        else:
            return False
        return True

    def _hand_state(self, parts: list[Handed], length: int, one: int) -> bool:
        """Add a checkpoint to `parts`. Returns whether it may be copied now."""
        tail, count = 1 + (length - 1) % self._parked.block, self._state_cells
        if (name := self._name(one)) is None and not self.allowance.has_room(max(tail, count)):
            return False
        self._hand_cells(parts, one, length - tail, tail, "tail")
        if name is not None:
            parts.append(Handed("state", length, (ReadOut(name),)))
        else:
            self.allowance.take(count)
            parts.append(state(one, length, count, self._parked.new_number()))
        return True

    def _name(self, one: int) -> int | None:
        """Return the name under which a checkpoint is parked, or `None`."""
        return one if one in self._parked else self._copies.get(one)

    @property
    def _may_copy(self) -> bool:
        """Return whether a checkpoint can be copied at all while other sequences generate."""
        largest = max(self._state_cells, self._parked.block)
        return self._can_move and self.allowance.is_possible(largest)

    # ---- a running sequence

    def _begin(self, slot: int, found: Found) -> None:
        if found.source is not None:
            self._began_with[slot] = found.source
            self._share(found.source, slot, found.length)

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """Park the checkpoints of `stored`. Returns the name of the longest one."""
        names: list[int] = []
        pieces = [piece.state for piece in stored.pieces]
        for one in stored.checkpoints:
            keys = stored.prompt.keys[: one.length]
            parts = self._parked.cut(keys)
            if self._equal(keys) is not None or not self._suits(stored, one.length):
                continue
            gain = one.length - self._before(keys)
            blocks: list[int] = []
            for part, data in zip(parts, [*pieces[: len(parts) - 1], one.tail], strict=True):
                is_new = self._parked.known(blocks, part) is None
                blocks.append(self._parked.take(blocks, part))
                if is_new:
                    self._edits.append(Put(blocks[-1], data))
            names.append(self._parked.add(blocks, self._policy.worth(gain)))
            self._edits.append(Put(names[-1], one.state))
            self._insert_parked(names[-1], keys)
        if not names:
            return None
        self._adopted.append(tuple(names))
        if len(self._adopted) > self._slots:
            self._adopted.popleft()
        self._trim()
        return names[-1]

    def grow(self, slot: int, count: int) -> None:
        """Record that `count` more tokens of `slot` were computed."""
        self._rolled_back.discard(slot)
        super().grow(slot, count)

    def discard(self, slot: int, start: int | None = None, count: int | None = None) -> None:
        """Remove rejected drafts of the last step of `slot`, or all its tokens.

        Only the drafts can be removed separately: cells of these models cannot move.
        """
        if count is not None:
            raise TypeError("cells of this model cannot move")
        start = self._cells.length(slot) if start is None else start
        if start < self._cells.length(slot):
            self._cells.truncate(slot, start)
        else:
            self._rolled_back.add(slot)
        self._edits.append(Clear(slot, start))

    def leave(self, slot: int, *, keeps: bool = True) -> None:
        """End the sequence of `slot`; its last position may become a checkpoint."""
        super().leave(slot, keeps=keeps)
        self._rolled_back.discard(slot)
        self._began_with.pop(slot, None)

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict checkpoints, and park them first if there is time."""
        num_urgent = count if num_urgent is None else num_urgent
        num_reserved = 0
        while count > self.room.num_free:
            is_urgent = self.room.num_free < num_urgent
            going = self._next_to_go(rather=self._copies if is_urgent else ())
            if going is None and self._restoring is not None:
                self._stop_restoring()
            elif going is None:
                raise RuntimeError(f"{count} cells asked for, more than are available")
            elif not self._let_go(going, is_urgent=is_urgent):
                num_reserved = RESERVE * num_urgent
                break
        self._park_ahead(count)
        return max(min(num_urgent, self.room.num_free), self.room.num_free - num_reserved)

    def lose(self, holder: int) -> tuple[int, ...]:
        """Forget the checkpoint of `holder`, which was restored with wrong cells.

        The parked copy and all checkpoints that share blocks with it are lost, too. Returns their
        names.
        """
        source = self._began_with.get(holder, holder)
        if self._restoring is not None and source == self._restoring.holder:
            name = self._restoring.name
            self._stop_restoring()
            return self._lose_parked(name)
        if source in self._worth:
            lost = self._copies.get(source)
            gone = () if lost is None else self._lose_parked(lost)
            self._drop(source)
            return gone
        if source in self._tree and source < self._slots:
            self._tree.remove(source)
            del self._used_at[source]
            self._keys.pop(source, None)
        return ()

    def take_edits(self) -> tuple[Edit, ...]:
        """Return the edits to carry out before the next batch, and forget them."""
        if self._restoring is not None:
            if not self._restoring.is_wanted:
                self._stop_restoring()
            else:
                self._restoring.is_wanted = False
        return super().take_edits()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        super().check_integrity()
        if self._restoring is not None:
            holder = self._restoring.holder
            check(holder not in self._free and holder not in self._worth, f"number {holder}")
        check(self._copies.keys() | self._parking.keys() <= self._worth.keys(), "copies")
        self._parked.check_integrity([each.blocks for each in self._parking.values()])
        for name in self._parked:
            is_copy = name in self._copies.values()
            check(is_copy != (name in self._tree), f"parked checkpoint {name}")

    # ---- checkpoints

    def _num_computed(self, holder: int) -> int | None:
        if holder in self._parked and not self._may_copy:
            return None
        return self._length(holder)

    def _length(self, holder: int) -> int:
        """Return the number of cells of a holder, or of parked positions if `holder` is a name."""
        if holder in self._parked:
            return self._parked.length(holder)
        return self._cells.length(holder)

    def _before(self, keys: Sequence[int]) -> int:
        """Return the length of the longest checkpoint on `keys`."""
        return max((length for length, _ in self._on(keys)), default=0)

    def _on(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """Return the checkpoints on `keys`: their lengths, each with a holder or name."""
        reaches = self._tree.reaches(keys) if keys else {}
        found = [(self._length(one), one) for one in reaches if one >= self._slots]
        return [(length, one) for length, one in found if length <= reaches[one]]

    def _equal(self, keys: Sequence[int]) -> int | None:
        """Return the checkpoint of exactly these `keys`, or `None`."""
        return next((one for length, one in self._on(keys) if length == len(keys)), None)

    def _announce(
        self,
        slot: int,
        keys: list[int],
        most_shared: int | None,
        marks: Sequence[Mark],
        borders: Sequence[int],
    ) -> None:
        """Enter the slot's tokens, with borders where other prompts may differ or continue."""
        shared = keys[:most_shared]
        self._catch_up_all()
        parting = max(self._tree.reaches(shared).values(), default=0) if shared else 0
        super()._announce(slot, keys, most_shared, marks, borders)
        start = self._cells.length(slot)
        most = len(shared) - 1
        ends = (min(border, most) for border in reversed(borders))
        places = (*ends, most, parting, *range(EVERY, len(shared), EVERY))
        self._borders[slot] = _apart(self._gap, start, (border(shared, place) for place in places))

    def _keep(self, slot: int, *, is_over: bool) -> None:
        """Take a checkpoint at the slot's position, if it is possible and worth it."""
        length = self._cells.length(slot)
        if not length or slot not in self._tree:
            return
        self._catch_up(slot)
        known = self._tree.keys(slot)
        keys = known[:length]
        if len(keys) < length or border(known, length) < length:
            return
        gain = length - self._before(keys)
        least_gain = min(LEAST_GAIN, self._gap) if is_over else 1
        if gain < least_gain or not self._make_number():
            return
        holder = self._free.pop()
        self._tree.insert(holder, keys)
        self._share(slot, holder, length)
        self._worth[holder] = 0.0
        self._use(holder)

    def _share(self, source: int, holder: int, length: int) -> None:
        self._cells.share(source, holder, length)
        is_rolled_back = source in self._rolled_back
        count = self._state_cells if self._copies_state or is_rolled_back else 0
        self._edits.append(Copy(source, holder, length, is_rolled_back, count=count))
        self.allowance.owe(count)

    def _cost(self, holder: int) -> int:
        keys = self._tree.keys(holder)
        return len(keys) - self._before(keys[:-1])

    def _make_room(self, count: int) -> bool:
        """Evict checkpoints for a restore. Returns whether `count` cells are free."""
        while count > self.room.num_free:
            going = self._next_to_go()
            if going is None or not self._let_go(going, is_urgent=False):
                return False
        return True

    def _leave_cells(self, holder: int) -> None:
        """Evict a checkpoint from the cells; a parked copy stays."""
        if (name := self._copies.get(holder)) is not None:
            self._insert_parked(name, self._tree.keys(holder))
        super()._leave_cells(holder)

    def _insert_parked(self, name: int, keys: Sequence[int]) -> None:
        """Enter a parked checkpoint in the tree, unless its keys have a checkpoint with cells."""
        self._tree.insert(name, keys)
        self._used_at[name] = 0

    def _remove_parked(self, name: int) -> None:
        self._tree.remove(name)
        del self._used_at[name]

    def _drop(self, holder: int) -> None:
        super()._drop(holder)
        if (name := self._copies.pop(holder, None)) is not None:
            self._parked.in_cells(name, 0)
        if (parking := self._parking.pop(holder, None)) is not None:
            self._free_blocks(self._parked.release(parking.blocks))

    # ---- host memory

    def _let_go(self, holder: int, *, is_urgent: bool) -> bool:
        """Evict `holder`, after parking it if there is time.

        Returns whether `holder` has left the cells.
        """
        if not self._park(holder) and not is_urgent:
            return False
        self._leave_cells(holder)
        return True

    def _park_ahead(self, count: int) -> None:
        """Copy the next checkpoints to evict if more than `count` cells, or numbers, would be
        short.
        """
        has_cells = self.room.num_free - count >= self.room.num_cells // AHEAD
        if not self._parked.most_bytes or (has_cells and len(self._free) >= NUM_AHEAD):
            return
        for holder in nsmallest(NUM_AHEAD, self._worth, key=self._worth.__getitem__):
            self._park(holder)

    def _park(self, holder: int) -> bool:
        """Copy as much of `holder` as may be copied now.

        Returns whether `holder` is parked, or can never be parked.
        """
        if holder in self._copies:
            return True
        parked = self._parked
        if not parked.most_bytes or not self._may_copy:
            return True
        parking = self._parking.get(holder)
        if parking is None:
            if self._in_the_way(0, holder) is None:
                return True
            parking = self._parking[holder] = _Parking(parked.cut(self._tree.keys(holder)))
        while parking.left and parked.known(parking.blocks, parking.left[0]) is not None:
            parking.blocks.append(parked.take(parking.blocks, parking.left.pop(0)))
        going = self._in_the_way(sum(map(len, parking.left)), holder)
        if going is None:
            self._free_blocks(parked.release(self._parking.pop(holder).blocks))
            return True
        for name in going:
            self._forget_parked(name)
        return self._copy_out(holder, parking)

    def _in_the_way(self, num_positions: int, holder: int) -> list[int] | None:
        """Return the names to remove from host memory to park `holder`; `None` if they are worth
        more.
        """
        sparing = None if self._restoring is None else self._restoring.name
        return self._parked.in_the_way(num_positions, self._worth[holder], sparing={sparing})

    def _copy_out(self, holder: int, parking: _Parking) -> bool:
        """Continue a copy, as far as may be copied now. Returns whether it is complete."""
        start = self._cells.length(holder) - sum(map(len, parking.left))
        while parking.left:
            num = len(parking.left[0])
            if not self.allowance.has_room(num):
                return False
            parking.blocks.append(self._parked.take(parking.blocks, parking.left.pop(0)))
            self._edits.append(Offload(holder, start, num, parking.blocks[-1]))
            self.allowance.take(num)
            start += num
        if not self.allowance.has_room(self._state_cells):
            return False
        name = self._parked.add(parking.blocks, self._worth[holder])
        self._edits.append(OffloadState(holder, start, name, self._state_cells))
        self.allowance.take(self._state_cells)
        self._copies[holder] = name
        self._parked.in_cells(name, start)
        del self._parking[holder]
        return True

    def _begin_restoring(self, name: int) -> bool:
        """Begin to restore `name` under a free number. Returns whether there is a free number.

        The restored checkpoint shares cells that other holders have of its beginning.
        """
        if not self._free and self._worth:
            self._let_go(min(self._worth, key=self._worth.__getitem__), is_urgent=False)
        if not self._free or name not in self._parked:
            return False
        holder = self._free.pop()
        self._restoring = _Restoring(name, holder)
        keys = self._tree.keys(name)[: max(0, self._parked.length(name) - self._window)]
        shared, source = 0, -1
        self._catch_up_all()
        for one, reach in (self._tree.reaches(keys) if keys else {}).items():
            if one not in self._parked:
                shared, source = max((shared, source), (min(reach, self._cells.length(one)), one))
        shared -= shared % self._parked.block
        if shared:
            self._cells.share(source, holder, shared)
            self._edits.append(Copy(source, holder, shared, is_bare=True))
        return True

    def _restored(self, restoring: _Restoring) -> None:
        """Enter the restored checkpoint, which stays parked, too."""
        name, holder = restoring.name, restoring.holder
        self._restoring = None
        self._tree.insert(holder, self._tree.keys(name))
        self._remove_parked(name)
        self._copies[holder] = name
        self._parked.in_cells(name, self._parked.length(name))
        self._worth[holder] = self._parked.worth(name)
        self._use(holder)
        self._adopted = deque(names for names in self._adopted if name not in names)
        self._trim()

    def _trim(self) -> None:
        """Remove parked checkpoints above the limit, except checkpoints that sequences may wait
        for.
        """
        awaited = {name for names in self._adopted for name in names}
        while (surplus := self._parked.surplus(awaited)) is not None:
            self._forget_parked(surplus)

    def _stop_restoring(self) -> None:
        """Cancel the restore, and free its cells."""
        if self._restoring is None:
            return
        holder, self._restoring = self._restoring.holder, None
        self._cells.close(holder)
        self._edits.append(Clear(holder))
        self._free.append(holder)

    def _lose_parked(self, name: int) -> tuple[int, ...]:
        """Forget the parked checkpoints that share blocks with `name`. Returns their names."""
        names = tuple(self._parked.relatives(name))
        for one in names:
            self._forget_parked(one)
        return names

    def _forget_parked(self, name: int) -> None:
        """Remove `name` from host memory."""
        if self._restoring is not None and self._restoring.name == name:
            self._stop_restoring()
        if name in self._tree:
            self._remove_parked(name)
        self._copies = {one: copy for one, copy in self._copies.items() if copy != name}
        self._free_blocks([*self._parked.remove(name), name])

    def _suits(self, stored: StoredPrompt, length: int) -> bool:
        """Return whether the pieces of `stored` before `length` are whole blocks."""
        block = self._parked.block
        counts = [piece.num_tokens for piece in stored.pieces[: (length - 1) // block]]
        return counts == [block] * ((length - 1) // block)


def _apart(gap: int, start: int, places: Iterable[int]) -> list[int]:
    """Return places after `start` at least `gap` apart; earlier places take precedence."""
    chosen: list[int] = []
    for place in places:
        if all(abs(place - other) >= gap for other in (start, *chosen)) and place > start:
            chosen.append(place)
    return sorted(chosen)
