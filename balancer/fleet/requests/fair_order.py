"""Start-time fair queueing: the order in which the waiting items of flows are taken.

The start tag of an item is the clock, or the end of the previous item of its flow if this is
later. An item ends `cost` after its start tag. The item with the lowest tag is next, and among
equal tags the item that came first. The clock follows the tags of taken items. So waiting flows
get equal costs, to within one item each, and a new flow does not wait behind the backlogs of other
flows. [Goyal, Vin, Cheng: "Start-time Fair Queueing", 1996.]

A client that opens a connection for each request makes a new flow each time. New flows must not
delay old flows forever. So while items wait, the clock also advances with each taken item, by the
item's cost divided by the number of flows.

The real cost of an item is known only at its end. The difference moves the waiting items of its
flow, but never to before the clock. So a flow that paid too much does not get everything back at
once.

Items wait in lanes, which share the clock. An item may be taken before an item of another lane
with a lower tag. A change costs O(log n), plus a list insertion of a few microseconds for ten
thousand items.

Invariants: an item is in one lane or is taken; the ranks of a lane are the ranks of its flows; the
tags of a flow's items that were never taken do not fall in order of arrival.
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
"""The maximum number of remembered flows without items. The first to leave is forgotten first."""

CORRECTED_TOGETHER = 8
"""A flow's waiting items are moved after an eighth of their number have ended."""


@dataclass(slots=True, eq=False)
class Item(Generic[F, L, T]):
    """An item of a flow. Later items have higher numbers.

    `lane` is the lane in which the item waits or last waited. `was_taken` is true if the item was
    taken at least once.
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
"""The order of an item: its tag, then its number."""


@dataclass(slots=True)
class _Flow(Generic[F, L, T]):
    """A flow. Its next item begins at `finish` plus `correction`, which is not applied yet."""

    finish: int
    num_items: int = 0
    num_waiting: int = 0
    correction: int = 0
    num_corrections: int = 0
    lanes: dict[L, list[Ranked[F, L, T]]] = field(default_factory=dict)


class FairOrder(Generic[F, L, T]):
    """The waiting items by lane and flow, and the number of taken items."""

    __slots__ = ("_debts", "_flows", "_lanes", "clock", "num_flows")

    def __init__(self) -> None:
        self.clock = 0
        self.num_flows = 0
        """The number of flows with waiting items."""
        self._flows: dict[F, _Flow[F, L, T]] = {}
        self._lanes: dict[L, list[Ranked[F, L, T]]] = {}
        self._debts: OrderedDict[F, int] = OrderedDict()
        """The earliest tags for flows that have no items, if the tags are later than the clock."""

    def __bool__(self) -> bool:
        """Return whether there are items, waiting or taken."""
        return bool(self._flows)

    @property
    def lanes(self) -> Iterable[L]:
        """The lanes with waiting items."""
        return self._lanes

    def __iter__(self) -> Iterator[T]:
        """Yield the waiting items, lane by lane."""
        return (item.of for ranks in self._lanes.values() for _, _, item in ranks)

    def add(self, item: Item[F, L, T], *, is_next: bool = False) -> None:
        """Add a waiting item.

        If `is_next`, the item goes before all other items of its flow.
        """
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
        """Take a waiting item, and advance the clock."""
        lag = self.extract(item)
        self.clock += lag + share_of(item.cost, self.num_flows)

    def extract(self, item: Item[F, L, T]) -> int:
        """Take a waiting item, and return the distance from the clock to its tag.

        The caller advances the clock.

        Several orders with competing items can then advance their clocks together.
        """
        self._extract(item)
        item.is_waiting, item.was_taken = False, True
        return max(item.tag - self.clock, 0)

    def put_back(self, item: Item[F, L, T], lane: L) -> None:
        """Let a taken item wait again in `lane` with its old tag."""
        if item.is_waiting:
            raise ValueError(f"item {item.number} waits already")
        item.lane, item.is_waiting = lane, True
        self._insert(item, self._flows[item.flow])

    def move(self, item: Item[F, L, T], lane: L) -> None:
        """Move a waiting item to `lane` with its old tag."""
        flow = self._extract(item)
        item.lane = lane
        self._insert(item, flow)

    def withdraw(self, item: Item[F, L, T]) -> None:
        """Remove a waiting item.

        The next item of its flow may get an earlier tag, but overtakes no other item of the flow.
        """
        flow = self._extract(item)
        flow.num_items -= 1
        last = max((ranks[-1][0] for ranks in flow.lanes.values()), default=flow.finish - item.cost)
        flow.finish = max(flow.finish - item.cost, last)
        self._forget_if_idle(item.flow)

    def end(self, item: Item[F, L, T], cost: int) -> None:
        """Remove a taken item, whose real cost is `cost`."""
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
        """Return the next item of `lane`, or `None` if the lane is empty."""
        ranks = self._lanes.get(lane)
        return ranks[0][2] if ranks else None

    def num_before(self, lane: L, tag: int, number: int) -> int:
        """Return the number of items in `lane` before the item with this tag and number."""
        return bisect_left(self._lanes.get(lane, ()), (tag, number))

    def num_in(self, lane: L) -> int:
        """Return the number of waiting items in `lane`."""
        return len(self._lanes.get(lane, ()))

    def of_flow(self, flow: F, lane: L, index: int) -> Item[F, L, T]:
        """Return the waiting item of `flow` at the position `index` in `lane`."""
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
        """Apply the correction of `flow` to its waiting items, except previously taken items."""
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
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
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
    """Return how far the clock advances for a taken item of `cost` while `num_flows` flows wait."""
    return -(-cost // (num_flows + 1)) if num_flows else 0
