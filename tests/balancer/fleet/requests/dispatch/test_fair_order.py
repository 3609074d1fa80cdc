"""Start-time fair queueing: examples, and what holds for any flows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.balancer.fleet.requests.dispatch.fair_order import MAX_DEBTS, FairOrder

FLOWS = "abc"
Order = FairOrder[str, str]


def order_of(*items: tuple[str, int]) -> Order:
    """Items 1, 2, … of these flows and costs, in one lane."""
    order = Order()
    for number, (flow, cost) in enumerate(items, 1):
        order.add(number, flow, "lane", cost)
    return order


def taken(order: Order, lane: str = "lane") -> list[int]:
    """All that wait, in the order in which they are taken."""
    numbers = []
    while (rank := order.first(lane)) is not None:
        order.take(rank[1])
        numbers.append(rank[1])
        order.check_integrity()
    return numbers


def test_flows_take_turns() -> None:
    assert taken(order_of(*[("a", 10)] * 4, *[("b", 10)] * 2)) == [1, 5, 2, 6, 3, 4]


def test_items_that_cost_more_count_more() -> None:
    assert taken(order_of(*[("a", 30)] * 3, *[("b", 10)] * 4)) == [1, 4, 5, 6, 2, 7, 3]


def test_who_comes_new_does_not_wait_behind_what_others_have_queued() -> None:
    order = order_of(*[("a", 10)] * 5)
    order.take(1)
    order.take(2)
    order.add(6, "b", "lane", 10)
    assert taken(order) == [6, 3, 4, 5]


def test_who_had_nothing_for_long_gets_no_more_for_it() -> None:
    order = order_of(("b", 10), *[("a", 10)] * 6)
    for number in (1, 2, 3, 4):
        order.take(number)
    order.end(1, 10)
    for number in (8, 9, 10):
        order.add(number, "b", "lane", 10)
    assert taken(order) == [8, 5, 9, 6, 10, 7]


def test_what_comes_back_is_where_it_was() -> None:
    order = order_of(*[("a", 10)] * 2, *[("b", 10)] * 2)
    for number in (1, 3, 2):
        order.take(number)
    order.put_back(1, "lane")
    order.put_back(3, "other")
    assert (taken(order), taken(order, "other")) == ([1, 4], [3])
    with pytest.raises(ValueError, match="waits already"):
        order_of(("a", 1)).put_back(1, "lane")


def test_an_item_that_took_less_lets_its_flow_begin_earlier_but_not_before_the_clock() -> None:
    order = order_of(*[("a", 100)] * 3, *[("b", 30)] * 4)
    order.take(1)
    order.end(1, 10)
    assert order.rank_of(2) == (order.clock, 2)
    assert taken(order) == [4, 5, 2, 6, 7, 3]
    order = order_of(("a", 100), ("a", 100))
    order.take(1)
    order.take(2)
    order.add(3, "a", "lane", 100)
    order.end(1, 0)
    order.end(2, 0)
    assert order.rank_of(3)[0] == order.clock


def test_an_item_that_took_more_lets_its_flow_begin_later() -> None:
    order = order_of(*[("a", 10)] * 2, *[("b", 10)] * 4)
    order.take(1)
    order.end(1, 25)
    assert taken(order) == [3, 4, 5, 2, 6]


def test_of_many_that_wait_corrections_are_made_together() -> None:
    order = order_of(*[("a", 100)] * 20)
    order.take(1)
    order.end(1, 50)
    assert order.rank_of(20)[0] == 1900
    for number in (2, 3):
        order.take(number)
        order.end(number, 50)
    assert order.rank_of(20)[0] < 1900
    order.check_integrity()


def test_who_withdraws_gives_back_what_it_was_charged() -> None:
    order = order_of(*[("a", 10)] * 3)
    order.withdraw(3)
    order.add(4, "b", "lane", 10)
    order.add(5, "a", "lane", 10)
    assert order.rank_of(5) == (20, 5)
    with pytest.raises(ValueError, match="does not wait"):
        order.take(1)
        order.withdraw(1)


def test_a_lane_has_its_own_first_and_the_clock_is_shared() -> None:
    order = Order()
    order.add(1, "a", "x", 10)
    order.add(2, "a", "y", 10)
    order.add(3, "b", "y", 10)
    assert (order.first("x"), order.first("y"), order.first("z")) == ((0, 1), (0, 3), None)
    order.move(2, "x")
    assert (order.num_in("x"), order.num_before("x", (10, 2)), order.flow_of(2)) == (2, 1, "a")
    assert order.of_flow("a", "x") == [(0, 1), (10, 2)]


def test_an_item_is_here_once() -> None:
    order = order_of(("a", 1))
    with pytest.raises(ValueError, match="already"):
        order.add(1, "a", "lane", 1)
    with pytest.raises(ValueError, match="waits"):
        order.end(1, 1)


def test_flows_that_went_are_remembered_within_bounds() -> None:
    order = Order()
    for number in range(MAX_DEBTS + 50):
        order.add(number, str(number), "lane", 10)
        order.take(number)
        order.end(number, 10)
    order.check_integrity()
    order.add(9999, str(MAX_DEBTS), "lane", 10)
    assert order.rank_of(9999)[0] > order.clock, "it had its share a moment ago"


COSTS = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(st.lists(COSTS, min_size=2, max_size=4))
def test_no_flow_is_below_its_share_by_more_than_an_item(costs: list[list[int]]) -> None:
    """Of any two flows that wait all the time: what they got differs by an item of each at most."""
    order, costs_of = Order(), dict[int, tuple[str, int]]()
    for flow, of_flow in enumerate(costs):
        for cost in of_flow:
            number = len(costs_of) + 1
            costs_of[number] = (str(flow), cost)
            order.add(number, str(flow), "lane", cost)
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
    while waiting_of(order, "old"):
        number += 1
        order.add(number, f"new {number}", "lane", cost)
        first = order.first("lane")
        assert first is not None
        order.take(first[1])
        num_new = num_new + 1 if order.flow_of(first[1]) != "old" else 0
        assert num_new <= 200


def waiting_of(order: Order, flow: str) -> list[int]:
    return [number for _, number in order.of_flow(flow, "lane")]


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
        self.order.add(self.num, flow, lane, cost)
        self.waiting[self.num] = (flow, lane)

    @precondition(lambda self: self.waiting)
    @rule(lane=st.sampled_from("xy"))
    def takes(self, lane: str) -> None:
        if (rank := self.order.first(lane)) is None:
            assert all(each[1] != lane for each in self.waiting.values())
            return
        before = self.order.clock
        self.order.take(rank[1])
        assert self.order.clock >= max(before, rank[0])
        self.running[rank[1]] = self.waiting.pop(rank[1])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        self.order.withdraw(number)
        del self.waiting[number]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 60), comes_back=st.booleans())
    def ends(self, data: st.DataObject, cost: int, comes_back: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        place = self.running.pop(number)
        if comes_back:
            self.order.put_back(number, place[1])
            self.waiting[number] = place
        else:
            self.order.end(number, cost)

    @invariant()
    def it_holds_together(self) -> None:
        self.order.check_integrity()
        assert len(self.order) == len(self.waiting) + len(self.running)


TestFairOrderMachine = FairOrderMachine.TestCase
TestFairOrderMachine.settings = settings(stateful_step_count=30)
