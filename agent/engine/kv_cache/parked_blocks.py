"""Kept prefixes in host memory: cells in shared blocks, and states of checkpoints.

The cells of layers with full attention can be cut anywhere. They are parked in blocks of a fixed
number of positions. A prefix's last block may be shorter, and prefixes with a common beginning
share blocks (W. Kwon et al.: Efficient memory management for large language model serving with
PagedAttention, SOSP 2023). Layers with a sliding window and recurrent layers have one state for
each checkpoint.

A parked prefix has a name, which is a number without cells. Some of its blocks may be absent: they
were never copied, because the prefix still has their cells. If there is no room for a prefix, the
prefixes with the least worth are removed. A prefix that is worth as much as the new one is never
removed.

Invariants, checked by `check_integrity`:

- a block is known as long as something uses it, and so are the blocks before it;
- `num_bytes` sums present blocks and states. It is at most `most_bytes`, except for adopted
  prefixes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ..integrity import check

MOST = 1024
"""Maximum parked prefixes. A search for the longest prefix visits all matching prefixes."""

Keys = tuple[int, ...]


@dataclass(slots=True)
class _Block:
    """A block: its `keys`, and the block before it (`parent`). `num_users` prefixes use
    the block.
    """

    parent: int
    keys: Keys
    num_users: int = 0
    num_in_cells: int = 0
    """The number of users that still have the cells of the block."""
    is_here: bool = False

    @property
    def num_parked(self) -> int:
        """The number of positions that are present here and not in the cells."""
        return len(self.keys) if self.is_here and not self.num_in_cells else 0


@dataclass(slots=True)
class _Parked:
    blocks: tuple[int, ...]
    length: int
    worth: float
    in_cells: int = 0
    """The number of the prefix's first positions that are in the cells."""


_START = -1
"""The parent of a prefix's first block."""


class ParkedBlocks:
    """Stores at most `most_bytes`: `cell_bytes` for each position, `state_bytes` for each prefix.

    A block has at most `block` positions. Names and ids of blocks are numbers from `first` on.
    """

    def __init__(
        self, *, first: int, block: int, most_bytes: int, cell_bytes: int, state_bytes: int
    ) -> None:
        self.num_bytes = 0
        self.num_positions = 0
        """The number of positions of present blocks that no prefix has in the cells."""
        self.most_bytes = most_bytes
        self.block = block
        self._cell_bytes = cell_bytes
        self._state_bytes = state_bytes
        self._numbers = count(first)
        self._blocks: dict[int, _Block] = {}
        self._ids: dict[tuple[int, Keys], int] = {}
        self._parked: dict[int, _Parked] = {}

    def __contains__(self, name: int) -> bool:
        return name in self._parked

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._parked))

    def new_number(self) -> int:
        """Return a new number for a block in host memory."""
        return next(self._numbers)

    def length(self, name: int) -> int:
        """Return the number of tokens of the prefix."""
        return self._parked[name].length

    def blocks(self, name: int) -> Iterator[tuple[int, int, int]]:
        """Yield the blocks of a prefix in order: id, start, and number of positions."""
        start = 0
        for id in self._parked[name].blocks:
            num = len(self._blocks[id].keys)
            yield id, start, num
            start += num

    def block_at(self, name: int, start: int) -> int:
        """Return the block of a prefix that begins at position `start`.

        All blocks of the prefix except the last one must be whole, as `cut` makes them.
        """
        return self._parked[name].blocks[start // self.block]

    def cut(self, keys: Sequence[int]) -> list[Keys]:
        """Split `keys` into blocks."""
        return [tuple(keys[at : at + self.block]) for at in range(0, len(keys), self.block)]

    def known(self, blocks: Sequence[int], keys: Keys) -> int | None:
        """Return the block with `keys` after `blocks`, or `None`."""
        return self._ids.get((blocks[-1] if blocks else _START, keys))

    def in_the_way(
        self,
        num_positions: int,
        worth: float,
        *,
        sparing: Collection[int | None] = (),
    ) -> list[int] | None:
        """Return the names to remove before `num_positions` more of a prefix are parked.

        Returns `None` if a prefix to remove is worth at least `worth`, the worth of the new
        prefix. Names in `sparing` are never removed.
        """
        excess = self.num_bytes - self.most_bytes
        excess += num_positions * self._cell_bytes + self._state_bytes
        num_excess = len(self._parked) + 1 - MOST
        going: list[int] = []
        users = Counter[int]()
        for name in sorted(self._parked, key=self.worth) if excess > 0 or num_excess > 0 else ():
            if excess <= 0 and len(going) >= num_excess:
                break
            if name in sparing:
                continue
            if self.worth(name) >= worth:
                return None
            going.append(name)
            excess -= self._state_bytes
            for id in self._parked[name].blocks:
                users[id] += 1
                if users[id] == self._blocks[id].num_users:
                    excess -= self._bytes(id)
        return going if excess <= 0 and len(going) >= num_excess else None

    def worth(self, name: int) -> float:
        """Return the worth of the prefix, by the eviction policy."""
        return self._parked[name].worth

    def use(self, name: int, worth: float) -> None:
        """Set the worth of the prefix."""
        self._parked[name].worth = worth

    def take(self, blocks: Sequence[int], keys: Keys, *, is_here: bool = True) -> int:
        """Return the block with `keys` after `blocks`, and count one more user of the block.

        An unknown block is added. `is_here` marks the block as present.
        """
        parent = blocks[-1] if blocks else _START
        id = self._ids.get((parent, keys))
        if id is None:
            id = self._ids[parent, keys] = self.new_number()
            self._blocks[id] = _Block(parent, keys)
        self._blocks[id].num_users += 1
        if is_here and not self._blocks[id].is_here:
            self.put(id)
        return id

    def put(self, id: int) -> None:
        """Mark the block as present."""
        self._change(id, is_here=True)

    def drop(self, id: int) -> None:
        """Mark a present block as absent."""
        self._change(id, is_here=False)

    def is_here(self, id: int) -> bool:
        """Return whether the block is present."""
        return self._blocks[id].is_here

    def add(self, blocks: Sequence[int], worth: float) -> int:
        """Add the prefix made of `blocks`, after `take` gave each block. Returns its name."""
        name = self.new_number()
        length = sum(len(self._blocks[id].keys) for id in blocks)
        self._parked[name] = _Parked(tuple(blocks), length, worth)
        self.num_bytes += self._state_bytes
        return name

    def remove(self, name: int) -> list[int]:
        """Remove the prefix. Returns its present blocks that no other prefix uses."""
        self.in_cells(name, 0)
        self.num_bytes -= self._state_bytes
        return self.release(self._parked.pop(name).blocks)

    def in_cells(self, name: int, length: int) -> None:
        """Note that the cells have the first `length` positions of the prefix, in whole blocks."""
        parked = self._parked[name]
        for id, start, _ in self.blocks(name):
            self._change(id, num_in_cells=(start < length) - (start < parked.in_cells))
        parked.in_cells = length

    def release(self, blocks: Sequence[int]) -> list[int]:
        """Count one user less for each of `blocks`, and remove blocks without users.

        Returns the removed blocks that were present.
        """
        gone = []
        for id in blocks:
            block = self._blocks[id]
            block.num_users -= 1
            if block.num_users:
                continue
            if block.is_here:
                self._change(id, is_here=False)
                gone.append(id)
            del self._blocks[id], self._ids[block.parent, block.keys]
        return gone

    def relatives(self, name: int) -> list[int]:
        """Return the names of the prefixes that share a block with `name`, and `name` itself."""
        blocks = set(self._parked[name].blocks)
        return [one for one, parked in self._parked.items() if blocks & set(parked.blocks)]

    def surplus(self, sparing: Collection[int | None]) -> int | None:
        """Return the name with the least worth if the limit is exceeded, ignoring names in
        `sparing`.
        """
        if self.num_bytes <= self.most_bytes:
            return None
        others = (name for name in self._parked if name not in sparing)
        return min(others, key=self.worth, default=None)

    def check_integrity(self, being_parked: Sequence[Sequence[int]]) -> None:
        """Raise `RuntimeError` if an invariant is broken.

        `being_parked` are additional uses of blocks by prefixes that are being parked.
        """
        users = Counter(id for parked in self._parked.values() for id in parked.blocks)
        users.update(id for blocks in being_parked for id in blocks)
        counts = {id: block.num_users for id, block in self._blocks.items()}
        check(counts == dict(users), f"users of blocks {counts}")
        for id, block in self._blocks.items():
            check(block.parent in (_START, *self._blocks), f"parent of block {id}")
            check(self._ids.get((block.parent, block.keys)) == id, f"keys of block {id}")
        check(len(self._ids) == len(self._blocks), "ids of blocks")
        num_bytes = sum(map(self._bytes, self._blocks)) + self._state_bytes * len(self._parked)
        check(num_bytes == self.num_bytes, f"{self.num_bytes} bytes")
        num_parked = sum(block.num_parked for block in self._blocks.values())
        check(self.num_positions == num_parked, "positions")
        in_cells = Counter(
            id
            for name, parked in self._parked.items()
            for id, start, _ in self.blocks(name)
            if start < parked.in_cells
        )
        held = {id: block.num_in_cells for id, block in self._blocks.items() if block.num_in_cells}
        check(held == in_cells, f"blocks in the cells {held}")

    def _change(self, id: int, *, is_here: bool | None = None, num_in_cells: int = 0) -> None:
        """Mark the block as present or absent, or change the count of users with its cells."""
        block = self._blocks[id]
        self.num_bytes -= self._bytes(id)
        self.num_positions -= block.num_parked
        block.is_here = block.is_here if is_here is None else is_here
        block.num_in_cells += num_in_cells
        self.num_bytes += self._bytes(id)
        self.num_positions += block.num_parked

    def _bytes(self, id: int) -> int:
        block = self._blocks[id]
        return len(block.keys) * self._cell_bytes if block.is_here else 0
