"""Start-time fair queueing: the order in which flows' items get their turns.

Each item has a start tag: the clock, or the end of its flow's item before, whichever is later. The
flow's next item may begin `cost` later. The lowest tag is next, of equal ones the first that came.
The clock follows the tags that are taken. So flows that wait get the same cost, up to one item
each, and a flow that comes new does not wait behind what others have queued. [Goyal, Vin, Cheng:
"Start-time Fair Queueing", 1996.]

Flows that come new again and again, as a client's that connects for each request, must not keep an
old one from its turn. So while items wait, the clock also goes on with each that is taken, by its
cost divided among the flows.

What an item really cost is known when it is over. The difference moves what its flow has waiting,
never to before the clock: no flow is given back, at once, all that it was charged too much.

Items wait in lanes, which share the clock: an item of one lane may be taken before one of another
that has a lower tag. Every change costs O(log n), spread over all, and to move what stands behind
it in a list, which takes a few microseconds for ten thousand.

Invariants: an item is in one lane or taken; a lane's ranks are those of its flows; tags of a flow's
items that were never taken do not fall, in the order they came.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

F = TypeVar("F", bound=Hashable)
L = TypeVar("L", bound=Hashable)
T = TypeVar("T")

MAX_DEBTS = 1024
"""Flows that are remembered while they have nothing here; beyond, the first to go is forgotten."""

CORRECTED_TOGETHER = 8
"""A flow's items move when one for each eight that wait is over, so that this stays cheap."""


@dataclass(slots=True, eq=False)
class Item(Generic[F, L, T]):
    """An item `of` something; numbers grow. `lane` is where it waits, or has waited.

    `was_taken`: at least once.
    """

    number: int
    flow: F
    lane: L
    cost: int
    of: T
    tag: int = 0
    is_waiting: bool = True
    was_taken: bool = False


Ranked = tuple[int, int, Item[F, L, T]]
"""An item after its tag and its number, by which it is ordered."""


@dataclass(slots=True)
class _Flow(Generic[F, L, T]):
    """`finish` is where its next item may begin, but for `correction`, which is yet to be made."""

    finish: int
    num_items: int = 0
    num_waiting: int = 0
    correction: int = 0
    num_corrections: int = 0
    lanes: dict[L, list[Ranked[F, L, T]]] = field(default_factory=dict)


class FairOrder(Generic[F, L, T]):
    """The items that wait, by lanes and flows; those that were taken are only counted."""

    __slots__ = ("_debts", "_flows", "_lanes", "clock", "num_flows")

    def __init__(self) -> None:
        self.clock = 0
        self.num_flows = 0
        """Flows of which items wait."""
        self._flows: dict[F, _Flow[F, L, T]] = {}
        self._lanes: dict[L, list[Ranked[F, L, T]]] = {}
        self._debts: OrderedDict[F, int] = OrderedDict()
        """Where flows that have no item may begin, if that is after the clock."""

    def __bool__(self) -> bool:
        """Whether there are items, waiting or taken."""
        return bool(self._flows)

    @property
    def lanes(self) -> Iterable[L]:
        """The lanes in which items wait."""
        return self._lanes

    def __iter__(self) -> Iterator[T]:
        """The waiting items, lane by lane."""
        return (item.of for ranks in self._lanes.values() for _, _, item in ranks)

    def add(self, item: Item[F, L, T], *, is_next: bool = False) -> None:
        """A new item waits; `is_next`: as one that was taken already, and came back."""
        owner = self._flows.get(item.flow)
        if owner is None:
            owner = self._flows[item.flow] = _Flow(self._debts.pop(item.flow, 0))
        begin = max(self.clock, owner.finish)
        owner.finish = begin + item.cost
        owner.num_items += 1
        item.tag = self._earliest() if is_next else begin
        item.was_taken = is_next
        self._insert(item, owner)

    def take(self, item: Item[F, L, T]) -> None:
        """An item that waits gets its turn, and the clock goes on."""
        lag = self.extract(item)
        self.clock += lag + share_of(item.cost, self.num_flows)

    def extract(self, item: Item[F, L, T]) -> int:
        """An item gets its turn, and the caller moves the clock: how far it is to the item's tag.

        Several orders, whose items compete, thus have clocks that go alike.
        """
        self._extract(item)
        item.is_waiting, item.was_taken = False, True
        return max(item.tag - self.clock, 0)

    def put_back(self, item: Item[F, L, T], lane: L) -> None:
        """An item that was taken waits again, with the tag that it had."""
        if item.is_waiting:
            raise ValueError(f"item {item.number} waits already")
        item.lane, item.is_waiting = lane, True
        self._insert(item, self._flows[item.flow])

    def move(self, item: Item[F, L, T], lane: L) -> None:
        """An item that waits does so in another lane, with the tag that it has."""
        flow = self._extract(item)
        item.lane = lane
        self._insert(item, flow)

    def withdraw(self, item: Item[F, L, T]) -> None:
        """An item that waits goes: its flow's next may begin earlier, but overtakes none."""
        flow = self._extract(item)
        flow.num_items -= 1
        last = max((ranks[-1][0] for ranks in flow.lanes.values()), default=flow.finish - item.cost)
        flow.finish = max(flow.finish - item.cost, last)
        self._forget_if_idle(item.flow)

    def end(self, item: Item[F, L, T], cost: int) -> None:
        """An item that was taken is over, and took `cost`."""
        if item.is_waiting:
            raise ValueError(f"item {item.number} waits")
        flow = self._flows[item.flow]
        flow.num_items -= 1
        flow.correction += cost - item.cost
        flow.num_corrections += 1
        if flow.num_corrections * CORRECTED_TOGETHER >= flow.num_waiting:
            self._correct(flow)
        self._forget_if_idle(item.flow)

    def first(self, lane: L) -> Item[F, L, T] | None:
        """The item of a lane that is next."""
        ranks = self._lanes.get(lane)
        return ranks[0][2] if ranks else None

    def num_before(self, lane: L, tag: int, number: int) -> int:
        """The number of a lane's items before this tag and number."""
        return bisect_left(self._lanes.get(lane, ()), (tag, number))

    def num_in(self, lane: L) -> int:
        """The number of waiting items in a lane."""
        return len(self._lanes.get(lane, ()))

    def of_flow(self, flow: F, lane: L, index: int) -> Item[F, L, T]:
        """The item of a flow that waits at `index` in one lane, in their order."""
        return self._flows[flow].lanes[lane][index][2]

    # ---- inside

    def _earliest(self) -> int:
        return min([self.clock, *(ranks[0][0] for ranks in self._lanes.values())])

    def _insert(self, item: Item[F, L, T], flow: _Flow[F, L, T]) -> None:
        ranked = (item.tag, item.number, item)
        insort(self._lanes.setdefault(item.lane, []), ranked)
        insort(flow.lanes.setdefault(item.lane, []), ranked)
        self.num_flows += not flow.num_waiting
        flow.num_waiting += 1

    def _extract(self, item: Item[F, L, T]) -> _Flow[F, L, T]:
        if not item.is_waiting:
            raise ValueError(f"item {item.number} does not wait")
        flow = self._flows[item.flow]
        flow.num_waiting -= 1
        self.num_flows -= not flow.num_waiting
        for lanes in (self._lanes, flow.lanes):
            ranks = lanes[item.lane]
            del ranks[bisect_left(ranks, (item.tag, item.number))]
            if not ranks:
                del lanes[item.lane]
        return flow

    def _correct(self, flow: _Flow[F, L, T]) -> None:
        """Move what the flow has waiting, but what was taken before."""
        shift, flow.correction, flow.num_corrections = flow.correction, 0, 0
        if not shift:
            return
        items = [item for ranks in flow.lanes.values() for _, _, item in ranks]
        waiting = [item for item in items if not item.was_taken]
        if waiting and shift < 0:
            first = min(item.tag for item in waiting)
            shift = max(shift, min(0, self.clock - first))
        for item in waiting:
            self._extract(item)
            item.tag += shift
            self._insert(item, flow)
        flow.finish += shift

    def _forget_if_idle(self, key: F) -> None:
        if self._flows[key].num_items:
            return
        finish = self._flows.pop(key).finish
        if finish > self.clock:
            self._debts[key] = finish
            if len(self._debts) > MAX_DEBTS:
                self._debts.popitem(last=False)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        lanes: dict[L, list[Ranked[F, L, T]]] = {}
        for key, flow in self._flows.items():
            own = sorted((rank for ranks in flow.lanes.values() for rank in ranks), key=_rank)
            if flow.num_waiting != len(own) or not len(own) <= flow.num_items > 0:
                raise RuntimeError(f"the flow {key} counts its items wrongly")
            for rank in own:
                lanes.setdefault(rank[2].lane, []).append(rank)
            in_order = sorted((item for _, _, item in own), key=lambda item: item.number)
            tags = [item.tag for item in in_order if not item.was_taken]
            if tags != sorted(tags):
                raise RuntimeError(f"the flow {key} overtakes itself")
        if {lane: sorted(ranks, key=_rank) for lane, ranks in lanes.items()} != self._lanes:
            raise RuntimeError("items wait out of order")
        if self.num_flows != sum(flow.num_waiting > 0 for flow in self._flows.values()):
            raise RuntimeError("flows that wait are miscounted")
        if len(self._debts) > MAX_DEBTS or self._debts.keys() & self._flows.keys():
            raise RuntimeError("debts of flows that are here, or too many")


def _rank(ranked: Ranked[F, L, T]) -> tuple[int, int]:
    return ranked[0], ranked[1]


def share_of(cost: int, num_flows: int) -> int:
    """The advance of the clock for an item that is taken while so many flows wait."""
    return -(-cost // (num_flows + 1)) if num_flows else 0
