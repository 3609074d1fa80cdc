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
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

F = TypeVar("F", bound=Hashable)
L = TypeVar("L", bound=Hashable)

Rank = tuple[int, int]
"""An item's tag and its number."""

MAX_DEBTS = 1024
"""Flows that are remembered while they have nothing here; beyond, the first to go is forgotten."""

CORRECTED_TOGETHER = 8
"""A flow's items move when one for each eight that wait is over, so that this stays cheap."""


@dataclass(slots=True)
class _Item(Generic[F, L]):
    """`lane` is where it waits, or has waited. `was_taken`: at least once."""

    flow: F
    lane: L
    tag: int
    cost: int
    is_waiting: bool = True
    was_taken: bool = False


@dataclass(slots=True)
class _Flow(Generic[L]):
    """`finish` is where its next item may begin, but for `correction`, which is yet to be made."""

    finish: int
    num_items: int = 0
    num_waiting: int = 0
    correction: int = 0
    num_corrections: int = 0
    lanes: dict[L, list[Rank]] = field(default_factory=dict)


class FairOrder(Generic[F, L]):
    """Items are numbers, which grow."""

    __slots__ = ("_debts", "_flows", "_items", "_lanes", "clock", "num_flows")

    def __init__(self) -> None:
        self.clock = 0
        self.num_flows = 0
        """Flows of which items wait."""
        self._items: dict[int, _Item[F, L]] = {}
        self._flows: dict[F, _Flow[L]] = {}
        self._lanes: dict[L, list[Rank]] = {}
        self._debts: OrderedDict[F, int] = OrderedDict()
        """Where flows that have no item may begin, if that is after the clock."""

    def __len__(self) -> int:
        """How many items are here, waiting or taken."""
        return len(self._items)

    def add(self, number: int, flow: F, lane: L, cost: int, *, is_next: bool = False) -> None:
        """A new item waits; `is_next`: as one that was taken already, and came back."""
        if number in self._items:
            raise ValueError(f"item {number} is here already")
        owner = self._flows.get(flow)
        if owner is None:
            owner = self._flows[flow] = _Flow(self._debts.pop(flow, 0))
        begin = max(self.clock, owner.finish)
        owner.finish = begin + cost
        owner.num_items += 1
        tag = self._earliest() if is_next else begin
        item = self._items[number] = _Item(flow, lane, tag, cost, was_taken=is_next)
        self._insert(number, item, owner)

    def take(self, number: int) -> None:
        """An item that waits gets its turn, and the clock goes on."""
        lag, cost = self.extract(number)
        self.clock += lag + share_of(cost, self.num_flows)

    def extract(self, number: int) -> tuple[int, int]:
        """An item gets its turn, and the caller moves the clock: how far to its tag, and its cost.

        Several orders, whose items compete, thus have clocks that go alike.
        """
        item = self._items[number]
        self._extract(number, item)
        item.is_waiting, item.was_taken = False, True
        return max(item.tag - self.clock, 0), item.cost

    def put_back(self, number: int, lane: L) -> None:
        """An item that was taken waits again, with the tag that it had."""
        item = self._items[number]
        if item.is_waiting:
            raise ValueError(f"item {number} waits already")
        item.lane, item.is_waiting = lane, True
        self._insert(number, item, self._flows[item.flow])

    def move(self, number: int, lane: L) -> None:
        """An item that waits does so in another lane, with the tag that it has."""
        item = self._items[number]
        self._extract(number, item)
        item.lane = lane
        self._insert(number, item, self._flows[item.flow])

    def withdraw(self, number: int) -> None:
        """An item that waits goes: its flow's next may begin earlier, but overtakes none."""
        item = self._items[number]
        self._extract(number, item)
        flow = self._drop(number)
        last = max((ranks[-1][0] for ranks in flow.lanes.values()), default=flow.finish - item.cost)
        flow.finish = max(flow.finish - item.cost, last)
        self._forget_if_idle(item.flow)

    def end(self, number: int, cost: int) -> None:
        """An item that was taken is over, and took `cost`."""
        item = self._items[number]
        if item.is_waiting:
            raise ValueError(f"item {number} waits")
        flow = self._drop(number)
        flow.correction += cost - item.cost
        flow.num_corrections += 1
        if flow.num_corrections * CORRECTED_TOGETHER >= flow.num_waiting:
            self._correct(flow)
        self._forget_if_idle(item.flow)

    def first(self, lane: L) -> Rank | None:
        """The item of a lane that is next."""
        ranks = self._lanes.get(lane)
        return ranks[0] if ranks else None

    def rank_of(self, number: int) -> Rank:
        """The rank of an item."""
        return (self._items[number].tag, number)

    def flow_of(self, number: int) -> F:
        """Whose item it is."""
        return self._items[number].flow

    def num_before(self, lane: L, rank: Rank) -> int:
        """How many items of a lane come before `rank`."""
        return bisect_left(self._lanes.get(lane, ()), rank)

    def num_in(self, lane: L) -> int:
        """How many items wait in a lane."""
        return len(self._lanes.get(lane, ()))

    def of_flow(self, flow: F, lane: L) -> list[Rank]:
        """The items of a flow in one lane, in their order; not to be changed."""
        owner = self._flows.get(flow)
        return [] if owner is None else owner.lanes.get(lane, [])

    # ---- inside

    def _earliest(self) -> int:
        return min([self.clock, *(ranks[0][0] for ranks in self._lanes.values())])

    def _drop(self, number: int) -> _Flow[L]:
        flow = self._flows[self._items.pop(number).flow]
        flow.num_items -= 1
        return flow

    def _insert(self, number: int, item: _Item[F, L], flow: _Flow[L]) -> None:
        rank = (item.tag, number)
        insort(self._lanes.setdefault(item.lane, []), rank)
        insort(flow.lanes.setdefault(item.lane, []), rank)
        self.num_flows += not flow.num_waiting
        flow.num_waiting += 1

    def _extract(self, number: int, item: _Item[F, L]) -> None:
        if not item.is_waiting:
            raise ValueError(f"item {number} does not wait")
        flow = self._flows[item.flow]
        flow.num_waiting -= 1
        self.num_flows -= not flow.num_waiting
        for lanes in (self._lanes, flow.lanes):
            ranks = lanes[item.lane]
            del ranks[bisect_left(ranks, (item.tag, number))]
            if not ranks:
                del lanes[item.lane]

    def _correct(self, flow: _Flow[L]) -> None:
        """Move what the flow has waiting, but what was taken before."""
        shift, flow.correction, flow.num_corrections = flow.correction, 0, 0
        if not shift:
            return
        waiting = [number for number in self._waiting_of(flow) if not self._items[number].was_taken]
        if waiting and shift < 0:
            first = min(self._items[number].tag for number in waiting)
            shift = max(shift, min(0, self.clock - first))
        for number in waiting:
            self._move(number, flow, shift)
        flow.finish += shift

    def _waiting_of(self, flow: _Flow[L]) -> Iterator[int]:
        return (number for ranks in flow.lanes.values() for _, number in ranks)

    def _move(self, number: int, flow: _Flow[L], shift: int) -> None:
        item = self._items[number]
        self._extract(number, item)
        item.tag += shift
        self._insert(number, item, flow)

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
        lanes: dict[L, list[Rank]] = {}
        for number, item in sorted(self._items.items()):
            if item.is_waiting:
                lanes.setdefault(item.lane, []).append((item.tag, number))
        if {lane: sorted(ranks) for lane, ranks in lanes.items()} != self._lanes:
            raise RuntimeError("items wait out of order")
        for key, flow in self._flows.items():
            own = [(n, item) for n, item in sorted(self._items.items()) if item.flow == key]
            if flow.num_items != len(own) or not own:
                raise RuntimeError(f"the flow {key} counts its items wrongly")
            if flow.num_waiting != sum(item.is_waiting for _, item in own):
                raise RuntimeError(f"the flow {key} counts its waiting items wrongly")
            tags = [item.tag for _, item in own if not item.was_taken]
            if tags != sorted(tags):
                raise RuntimeError(f"the flow {key} overtakes itself")
        if self.num_flows != sum(flow.num_waiting > 0 for flow in self._flows.values()):
            raise RuntimeError("flows that wait are miscounted")
        if len(self._debts) > MAX_DEBTS or self._debts.keys() & self._flows.keys():
            raise RuntimeError("debts of flows that are here, or too many")


def share_of(cost: int, num_flows: int) -> int:
    """How far the clock goes on with an item that is taken while so many flows wait."""
    return -(-cost // (num_flows + 1)) if num_flows else 0
