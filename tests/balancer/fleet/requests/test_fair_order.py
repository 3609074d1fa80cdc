"""Start-time fair queueing: examples, and what holds for any flows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.balancer.fleet.requests.fair_order import MAX_DEBTS, FairOrder, Item

FLOWS = "abc"


class Order(FairOrder[str, str, None]):
    """An order of which the items have numbers."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        super().__init__()
        self.items: dict[int, Item[str, str, None]] = {}

    def __getitem__(self, number: int) -> Item[str, str, None]:
        return self.items[number]

    def put(self, number: int, flow: str, lane: str, cost: int) -> None:
        self.items[number] = Item(number, flow, lane, cost, None)
        self.add(self.items[number])


def order_of(*items: tuple[str, int]) -> Order:
    """Items 1, 2, … of these flows and costs, in one lane."""
    order = Order()
    for number, (flow, cost) in enumerate(items, 1):
        order.put(number, flow, "lane", cost)
    return order


def taken(order: Order, lane: str = "lane") -> list[int]:
    """All that wait, in the order in which they are taken."""
    numbers = []
    while (item := order.first(lane)) is not None:
        order.take(item)
        numbers.append(item.number)
        order.check_integrity()
    return numbers


def test_flows_take_turns() -> None:
    assert taken(order_of(*[("a", 10)] * 4, *[("b", 10)] * 2)) == [1, 5, 2, 6, 3, 4]


def test_items_that_cost_more_count_more() -> None:
    assert taken(order_of(*[("a", 30)] * 3, *[("b", 10)] * 4)) == [1, 4, 5, 6, 2, 7, 3]


def test_who_comes_new_does_not_wait_behind_what_others_have_queued() -> None:
    order = order_of(*[("a", 10)] * 5)
    order.take(order[1])
    order.take(order[2])
    order.put(6, "b", "lane", 10)
    assert taken(order) == [6, 3, 4, 5]


def test_who_had_nothing_for_long_gets_no_more_for_it() -> None:
    order = order_of(("b", 10), *[("a", 10)] * 6)
    for number in (1, 2, 3, 4):
        order.take(order[number])
    order.end(order[1], 10)
    for number in (8, 9, 10):
        order.put(number, "b", "lane", 10)
    assert taken(order) == [8, 5, 9, 6, 10, 7]


def test_what_comes_back_is_where_it_was() -> None:
    order = order_of(*[("a", 10)] * 2, *[("b", 10)] * 2)
    for number in (1, 3, 2):
        order.take(order[number])
    order.put_back(order[1], "lane")
    order.put_back(order[3], "other")
    assert (taken(order), taken(order, "other")) == ([1, 4], [3])
    with pytest.raises(ValueError, match="waits already"):
        order = order_of(("a", 1))
        order.put_back(order[1], "lane")


def test_an_item_that_took_less_lets_its_flow_begin_earlier_but_not_before_the_clock() -> None:
    order = order_of(*[("a", 100)] * 3, *[("b", 30)] * 4)
    order.take(order[1])
    order.end(order[1], 10)
    assert order[2].tag == order.clock
    assert taken(order) == [4, 5, 2, 6, 7, 3]
    order = order_of(("a", 100), ("a", 100))
    order.take(order[1])
    order.take(order[2])
    order.put(3, "a", "lane", 100)
    order.end(order[1], 0)
    order.end(order[2], 0)
    assert order[3].tag == order.clock


def test_an_item_that_took_more_lets_its_flow_begin_later() -> None:
    order = order_of(*[("a", 10)] * 2, *[("b", 10)] * 4)
    order.take(order[1])
    order.end(order[1], 25)
    assert taken(order) == [3, 4, 5, 2, 6]


def test_of_many_that_wait_corrections_are_made_together() -> None:
    order = order_of(*[("a", 100)] * 20)
    order.take(order[1])
    order.end(order[1], 50)
    assert order[20].tag == 1900
    for number in (2, 3):
        order.take(order[number])
        order.end(order[number], 50)
    assert order[20].tag < 1900
    order.check_integrity()


def test_who_withdraws_gives_back_what_it_was_charged() -> None:
    order = order_of(*[("a", 10)] * 3)
    order.withdraw(order[3])
    order.put(4, "b", "lane", 10)
    order.put(5, "a", "lane", 10)
    assert order[5].tag == 20
    with pytest.raises(ValueError, match="does not wait"):
        order.take(order[1])
        order.withdraw(order[1])


def test_a_lane_has_its_own_first_and_the_clock_is_shared() -> None:
    order = Order()
    order.put(1, "a", "x", 10)
    order.put(2, "a", "y", 10)
    order.put(3, "b", "y", 10)
    assert (order.first("x"), order.first("y"), order.first("z")) == (order[1], order[3], None)
    order.move(order[2], "x")
    assert (order.num_in("x"), order.num_before("x", 10, 2)) == (2, 1)
    assert [order.of_flow("a", "x", index) for index in (0, -1)] == [order[1], order[2]]


def test_an_item_that_waits_does_not_end() -> None:
    order = order_of(("a", 1))
    with pytest.raises(ValueError, match="waits"):
        order.end(order[1], 1)


def test_flows_that_went_are_remembered_within_bounds() -> None:
    order = Order()
    for number in range(MAX_DEBTS + 50):
        order.put(number, str(number), "lane", 10)
        order.take(order[number])
        order.end(order[number], 10)
    order.check_integrity()
    order.put(9999, str(MAX_DEBTS), "lane", 10)
    assert order[9999].tag > order.clock, "it had its share a moment ago"


COSTS = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(st.lists(COSTS, min_size=2, max_size=4))
def test_no_flow_is_below_its_share_by_more_than_an_item(costs: list[list[int]]) -> None:
    """Of any two flows that wait all the time: what they got differs by an item of each at most."""
    order, costs_of = Order(), dict[int, tuple[str, int]]()
    for flow, of_flow in enumerate(costs):
        for cost in of_flow:
            number = len(costs_of) + 1
            costs_of[number] = (str(flow), cost)
            order.put(number, str(flow), "lane", cost)
    got = dict.fromkeys(map(str, range(len(costs))), 0)
    for number in taken(order):
        flow, cost = costs_of[number]
        got[flow] += cost
        waits = [str(f) for f in range(len(costs)) if got[str(f)] < sum(costs[f])]
        for one in waits:
            for other in waits:
                most = max(costs[int(one)]) + max(costs[int(other)])
                assert abs(got[one] - got[other]) <= most


@given(COSTS, st.integers(1, 50))
def test_flows_that_come_new_again_and_again_do_not_starve_an_old_one(
    costs: list[int], cost: int
) -> None:
    order = order_of(*[("old", each) for each in costs])
    number, num_new = len(costs), 0
    while any(item.flow == "old" and item.is_waiting for item in order.items.values()):
        number += 1
        order.put(number, f"new {number}", "lane", cost)
        first = order.first("lane")
        assert first is not None
        order.take(first)
        num_new = num_new + 1 if first.flow != "old" else 0
        assert num_new <= 200


class FairOrderMachine(RuleBasedStateMachine):
    """Any history keeps the invariants, and no flow overtakes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.num = 0
        self.waiting: dict[int, tuple[str, str]] = {}
        self.running: dict[int, tuple[str, str]] = {}

    @rule(flow=st.sampled_from(FLOWS), lane=st.sampled_from("xy"), cost=st.integers(0, 30))
    def adds(self, flow: str, lane: str, cost: int) -> None:
        self.num += 1
        self.order.put(self.num, flow, lane, cost)
        self.waiting[self.num] = (flow, lane)

    @precondition(lambda self: self.waiting)
    @rule(lane=st.sampled_from("xy"))
    def takes(self, lane: str) -> None:
        if (item := self.order.first(lane)) is None:
            assert all(each[1] != lane for each in self.waiting.values())
            return
        before = self.order.clock
        self.order.take(item)
        assert self.order.clock >= max(before, item.tag)
        self.running[item.number] = self.waiting.pop(item.number)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        self.order.withdraw(self.order[number])
        del self.waiting[number]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 60), comes_back=st.booleans())
    def ends(self, data: st.DataObject, cost: int, comes_back: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        place = self.running.pop(number)
        if comes_back:
            self.order.put_back(self.order[number], place[1])
            self.waiting[number] = place
        else:
            self.order.end(self.order[number], cost)

    @invariant()
    def it_holds_together(self) -> None:
        self.order.check_integrity()
        assert bool(self.order) == bool(self.waiting or self.running)


TestFairOrderMachine = FairOrderMachine.TestCase
TestFairOrderMachine.settings = settings(stateful_step_count=30)
