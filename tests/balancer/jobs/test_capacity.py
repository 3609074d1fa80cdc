"""How many lines of a model may run at once."""

from arriero.balancer.fleet.view import ForegroundView
from arriero.balancer.jobs.capacity import QUERIES_AT_ONCE, Capacity
from tests.balancer.jobs.builders import Clock, FakeFleet


def capacity(fleet: FakeFleet, clock: Clock) -> Capacity:
    return Capacity(fleet, patience=60.0, now=clock(), clock=clock)


def test_as_many_as_slots_and_a_few() -> None:
    fleet = FakeFleet(slots={"m": 4, "large": 80, None: 84})
    room = capacity(fleet, Clock()).room
    assert (room("m"), room("large"), room(None)) == (6, 90, 94)


def test_the_queue_is_never_filled() -> None:
    room = capacity(FakeFleet(slots={"m": 80}, queue_limit=8), Clock()).room
    assert room("m") == 82
    assert capacity(FakeFleet(slots={"m": 4}, queue_limit=0), Clock()).room("m") == 4


def test_a_slot_is_left_free_while_others_come() -> None:
    fleet = FakeFleet(slots={"m": 4, "large": 80, "one": 1})
    room = capacity(fleet, Clock()).room
    fleet.others = ForegroundView(0, 59.0)
    assert (room("m"), room("large"), room("one")) == (3, 70, 3)
    fleet.others = ForegroundView(2, 90.0)
    assert (room("m"), room("large")) == (1, 68)
    fleet.others = ForegroundView(9, 1.0)
    assert room("m") == 1
    fleet.others = ForegroundView(0, 61.0)
    assert room("m") == 6


def test_one_line_waits_for_a_model_that_is_loading() -> None:
    assert capacity(FakeFleet(slots={}, known={"m": ("generate",)}), Clock()).room("m") == 1


def test_queries_take_no_slots() -> None:
    room = capacity(FakeFleet(slots={}, known={"m": ("embed",)}), Clock()).room
    assert room("m") == QUERIES_AT_ONCE


def test_agents_may_be_on_their_way() -> None:
    clock = Clock()
    made = capacity(FakeFleet(slots={}), clock)
    assert (made.room("m"), made.may_come("m"), made.deadline) == (0, True, clock() + 60.0)
    clock.now += 60.0
    assert (made.room("m"), made.may_come("m"), made.deadline) == (1, False, None)


def test_a_model_that_was_here_is_waited_for() -> None:
    clock, fleet = Clock(), FakeFleet(slots={"m": 4})
    made = capacity(fleet, clock)
    assert made.room("m") == 6
    clock.now += 1000.0
    fleet.slots.clear()
    assert (made.room("m"), made.may_come("m")) == (0, True)
