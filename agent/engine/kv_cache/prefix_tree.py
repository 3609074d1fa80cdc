"""A radix tree over cache keys, one key per position: the holders of each prefix.

A key is a token's id in a text prompt (`prompt` describes other keys). Only the equality of keys
counts here.

A holder enters with the keys of its computed and planned positions. The caller of `find` says how
many positions of a holder are computed, so `find` also finds a prefix that is still being
computed.

Invariants, checked by `check_integrity`:

- each node's edge has keys, and its children begin with different keys;
- a node knows the holders of its whole edge; a child's holders are among its parent's;
- a holder's tokens end where a node ends;
- a mark lies within its node's edge, and `marks` counts the marks of all nodes.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..integrity import check
from ..prompt import border
from ..statistics import Gone

MAX_MARKS = 2**17
"""Maximum held keys: some 15 MB."""

MAX_GONE = 2**16
"""Maximum keys that are gone and not yet reported."""

Mark = tuple[int, int]
"""The length of a prefix in tokens, and its key."""


class PrefixMarks:
    """Keys of cached prefixes, and the keys that left the cache since the last report.

    Balancers identify a prefix by a key of its text, the cache by its tokens. So a sequence brings
    the keys of its prompt's prefixes as marks on its positions. A key is held as long as one of
    its marks exists; balancers are told when the last mark is removed.

    Invariant: a key is never both held and gone. Both sets are bounded: a mark without room counts
    as gone, and if too many keys are gone, all keys count as gone.

    The engine's thread adds marks, the event loop's thread takes gone keys. Each step is one
    operation of a `dict`, so no lock is needed.
    """

    def __init__(self, *, max_marks: int = MAX_MARKS, max_gone: int = MAX_GONE) -> None:
        self._max_marks = max_marks
        self._max_gone = max_gone
        self._counts: dict[int, int] = {}
        self._gone: dict[int, None] = {}
        self._lost_track = False

    def __len__(self) -> int:
        """Return the number of held keys."""
        return len(self._counts)

    def __contains__(self, key: object) -> bool:
        return key in self._counts

    @property
    def counts(self) -> Mapping[int, int]:
        """The number of marks of each held key."""
        return self._counts

    def add(self, key: int) -> bool:
        """Add a mark of `key`. Returns false if there is no room for it."""
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= self._max_marks:
            self.absent(key)
            return False
        self._counts[key] = count + 1
        self._gone.pop(key, None)
        return True

    def release(self, key: int) -> None:
        """Remove a mark of `key`."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self.absent(key)

    def absent(self, key: int) -> None:
        """Report `key` as gone, unless it is held: a balancer may believe that it is cached."""
        if key in self._counts:
            return
        if len(self._gone) < self._max_gone:
            self._gone[key] = None
        else:
            self._lost_track = True

    def take_gone(self, most: int) -> Gone:
        """Return up to `most` keys that are gone, each once. Only one thread may call this."""
        if self._lost_track:
            self._lost_track = False
            self._gone.clear()
            return Gone(everything=True)
        keys: list[int] = []
        with suppress(KeyError):  # none is left; the engine's thread may have taken the last one
            while len(keys) < most:
                keys.append(self._gone.popitem()[0])
        return Gone(tuple(keys))


class _Node:
    __slots__ = ("children", "edge", "holders", "marks", "parent")

    def __init__(self, edge: list[int], parent: "_Node | None", holders: set[int]) -> None:
        self.edge = edge
        self.parent = parent
        self.holders = holders
        self.children: dict[int, _Node] = {}
        self.marks: dict[int, int] = {}
        """Marked keys, each with the number of keys of the edge up to the mark."""


@dataclass(frozen=True, slots=True)
class Found:
    """The longest computed prefix: `length` tokens of the holder `source`, if any.

    `promised` tokens, more than `length`, exist once the holder `promised_by` has computed them.
    `num_stored` tokens can be adopted from storage.
    """

    length: int = 0
    source: int | None = None
    promised: int = 0
    promised_by: int | None = None
    num_stored: int = 0


class PrefixTree:
    """Stores holders and their keys."""

    def __init__(self) -> None:
        self.marks = PrefixMarks()
        self._root = _Node([], None, set())
        self._ends: dict[int, _Node] = {}
        self._lengths: dict[int, int] = {}

    def __contains__(self, holder: int) -> bool:
        return holder in self._ends

    def length(self, holder: int) -> int:
        """Return the number of tokens of `holder`."""
        return self._lengths[holder]

    def insert(self, holder: int, keys: Sequence[int]) -> None:
        """Add a holder with the `keys` of its computed and planned positions."""
        if holder in self._ends:
            raise ValueError(f"holder {holder} is here already")
        self._root.holders.add(holder)
        self._ends[holder] = self._root
        self._lengths[holder] = 0
        self.extend(holder, keys)

    def extend(self, holder: int, keys: Sequence[int]) -> None:
        """Add keys at the end of `holder`."""
        rest = list(keys)
        self._lengths[holder] += len(rest)
        node = self._ends[holder]
        while rest:
            child = node.children.get(rest[0])
            if child is None:
                node = self._append(holder, node, rest)
                break
            common = _num_common(child.edge, rest, 0)
            if common < len(child.edge):
                child = _split(child, common)
            child.holders.add(holder)
            rest = rest[common:]
            node = child
        self._ends[holder] = node

    def remove(self, holder: int) -> None:
        """Remove `holder`."""
        del self._lengths[holder]
        node: _Node | None = self._ends.pop(holder)
        while node is not None:
            node.holders.remove(holder)
            parent = node.parent
            if parent is not None and not node.holders:
                del parent.children[node.edge[0]]
                for key in node.marks:
                    self.marks.release(key)
            else:
                self._merge_with_child(node)
            node = parent

    def shorten(self, holder: int, length: int) -> None:
        """Remove the tokens of `holder` after its first `length`."""
        keys = self.keys(holder)[:length]
        kept = [mark for mark in self._marks_of(holder) if mark[0] <= length]
        for _, key in kept:
            self.marks.add(key)  # so that it is not gone in between
        self.remove(holder)
        self.insert(holder, keys)
        self.mark(holder, kept)
        for _, key in kept:
            self.marks.release(key)

    def mark(self, holder: int, marks: Sequence[Mark]) -> None:
        """Mark positions of `holder`, in ascending order; marks after its end count as absent."""
        node, end = self._ends[holder], self._lengths[holder]
        for position, key in reversed(marks):
            if position > self._lengths[holder]:
                self.marks.absent(key)
                continue
            while node.parent is not None and position <= end - len(node.edge):
                end -= len(node.edge)
                node = node.parent
            if key not in node.marks and self.marks.add(key):
                node.marks[key] = position - end + len(node.edge)

    def find(
        self,
        keys: Sequence[int],
        *,
        most: int,
        computed: Callable[[int], int | None],
        used_at: Mapping[int, int],
        are_whole: bool = False,
    ) -> Found:
        """Return the longest prefix of `keys`, of at most `most`, that a holder has computed.

        `computed` returns how many tokens of a holder are computed, or `None` to ignore the
        holder. If several holders have the prefix, the source is the holder used last, by
        `used_at`. The prefix does not end within media. If holders `are_whole`, a part of a
        holder's tokens is no prefix.
        """
        best, promise = (0, -1, -1), (0, -1, -1)
        seen: set[int] = set()
        for node, depth in reversed(list(self._walk(keys))):
            reach = border(keys, min(depth, most))
            if reach < best[0]:
                break
            for holder in node.holders - seen:
                if best[0] == reach and best[1] > used_at[holder]:
                    continue  # many may share a beginning
                done = computed(holder)
                if done is None:
                    continue
                length = reach if done >= reach else border(keys, done)
                if length == done or not are_whole:
                    best = max(best, (length, used_at[holder], holder))
                if done < reach:
                    promise = max(promise, (reach, done, holder))
            seen |= node.holders
        found = Found(best[0], best[2]) if best[0] else Found()
        if promise[0] > best[0]:
            return Found(found.length, found.source, promise[0], promise[2])
        return found

    def reaches(self, keys: Sequence[int]) -> dict[int, int]:
        """Return how many of `keys` each holder has, if any; the largest numbers come first."""
        reaches: dict[int, int] = {}
        for node, depth in reversed(list(self._walk(keys))):
            for holder in node.holders:
                reaches.setdefault(holder, depth)
        return reaches

    def num_alone(self, holder: int, among: Container[int]) -> int:
        """Return how many last keys of `holder` it shares with no other holder in `among`."""
        count = 0
        node: _Node | None = self._ends[holder]
        while node is not None and node.parent is not None:
            if len(node.holders) > 1 and any(one in among for one in node.holders - {holder}):
                break
            count += len(node.edge)
            node = node.parent
        return count

    def others_with_all_of(self, holder: int) -> set[int]:
        """Return the other holders that have all tokens of `holder`."""
        return self._ends[holder].holders - {holder}

    def others_within(self, holder: int) -> set[int]:
        """Return the other holders whose tokens are a prefix of the tokens of `holder`."""
        path = set()
        node: _Node | None = self._ends[holder]
        while node is not None:
            path.add(node)
            node = node.parent
        return {other for other, end in self._ends.items() if end in path} - {holder}

    def keys(self, holder: int) -> list[int]:
        """Return the keys of `holder`."""
        edges = []
        node: _Node | None = self._ends[holder]
        while node is not None:
            edges.append(node.edge)
            node = node.parent
        return [key for edge in reversed(edges) for key in edge]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            for first, child in node.children.items():
                check(child.parent is node and child.edge[:1] == [first], "children")
                check(bool(child.holders) and child.holders <= node.holders, "holders of nodes")
                waiting.append(child)
        self._check_marks()
        for holder, end in self._ends.items():
            inside = [holder in child.holders for child in end.children.values()]
            check(holder in end.holders and not any(inside), f"end of holder {holder}")
            check(len(self.keys(holder)) == self._lengths[holder], f"length of {holder}")

    def _check_marks(self) -> None:
        waiting, held = [self._root], Counter[int]()
        while waiting:
            node = waiting.pop()
            check(all(1 <= at <= len(node.edge) for at in node.marks.values()), "marks")
            held.update(node.marks.keys())
            waiting += node.children.values()
        check(held == self.marks.counts, "counts of marks")

    def _marks_of(self, holder: int) -> list[Mark]:
        """Return the marks of `holder` in the order of their positions."""
        marks = []
        node, end = self._ends[holder], self._lengths[holder]
        while node.parent is not None:
            start = end - len(node.edge)
            marks += [(start + at, key) for key, at in node.marks.items()]
            node, end = node.parent, start
        return sorted(marks)

    def _merge_with_child(self, node: _Node) -> None:
        """Merge the node with its only child, if their holders are the same."""
        if node.parent is None or len(node.children) != 1:
            return
        (child,) = node.children.values()
        if len(child.holders) != len(node.holders):
            return
        for key in node.marks.keys() & child.marks.keys():
            self.marks.release(key)
        length = len(node.edge)
        child.marks = {key: length + at for key, at in child.marks.items()} | node.marks
        child.edge[:0] = node.edge
        child.parent = node.parent
        node.parent.children[child.edge[0]] = child

    def _append(self, holder: int, node: _Node, rest: list[int]) -> _Node:
        is_alone = node.parent is not None and not node.children and len(node.holders) == 1
        if is_alone:
            node.edge += rest
            return node
        child = node.children[rest[0]] = _Node(rest, node, {holder})
        return child

    def _walk(self, keys: Sequence[int]) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes along `keys`, each with the number of keys that the path covers."""
        node: _Node | None = self._root.children.get(keys[0])
        depth = 0
        while node is not None:
            common = _num_common(node.edge, keys, depth)
            depth += common
            yield node, depth
            if common < len(node.edge) or depth == len(keys):
                return
            node = node.children.get(keys[depth])


def _num_common(edge: list[int], keys: Sequence[int], start: int) -> int:
    """Return how many first keys of `edge` equal the keys from `start` on."""
    part = keys[start : start + len(edge)]
    if edge == part:
        return len(edge)
    for index, (one, other) in enumerate(zip(edge, part, strict=False)):
        if one != other:
            return index
    return len(part)


def _split(node: _Node, length: int) -> _Node:
    """Make the first `length` keys of `node` a node of their own, its parent."""
    parent = node.parent
    if parent is None:
        raise RuntimeError("the root has no edge to split")
    first = _Node(node.edge[:length], parent, set(node.holders))
    parent.children[first.edge[0]] = first
    del node.edge[:length]
    node.parent = first
    first.children[node.edge[0]] = node
    first.marks = {key: at for key, at in node.marks.items() if at <= length}
    node.marks = {key: at - length for key, at in node.marks.items() if at > length}
    return first
