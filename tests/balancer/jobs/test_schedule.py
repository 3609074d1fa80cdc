"""What runs next and how many at once: by hand, and in any history."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.view import ForegroundView
from arriero.balancer.jobs.lines import Line
from arriero.balancer.jobs.schedule import QUERIES_AT_ONCE, Capacity, LineKey, Schedule
from tests.balancer.jobs.builders import Clock, FakeFleet
from tests.balancer.jobs.starting import all_next


def line(number: int, model: str | None = "m", group: bytes | None = None) -> Line:
    return Line(number=number, custom_id=f"c{number}", model=model, group=group)


def started(schedule: Schedule, now: float = 0.0, room: int = 2) -> list[LineKey]:
    return [key for key, _ in all_next(schedule, now, lambda _model: room)]


def with_lines(*lines: Line) -> Schedule:
    schedule = Schedule()
    schedule.add("b")
    schedule.loaded("b", 0, lines)
    return schedule


def finish(schedule: Schedule, key: LineKey) -> int | None:
    schedule.settle(key)
    return schedule.ended(key)


def test_no_more_run_than_there_is_room_for() -> None:
    schedule = with_lines(line(1), line(2), line(3))
    first, second = started(schedule)
    assert (first.number, second.number) == (1, 2)
    assert started(schedule) == []
    schedule.settle(first)
    assert [key.number for key in started(schedule)] == [3], "a slot is free before it is written"


def test_each_model_has_room_of_its_own() -> None:
    schedule = with_lines(line(1, "a"), line(2, "a"), line(3, "b"))
    rooms = {"a": 1, "b": 1}
    keys = [key.number for key, _ in all_next(schedule, 0.0, lambda model: rooms[model or ""])]
    assert keys == [1, 3]


def test_batches_share_what_there_is() -> None:
    schedule = Schedule()
    for id in ("x", "y"):
        schedule.add(id)
    schedule.loaded("x", 0, [line(n) for n in range(1, 9)])
    schedule.loaded("y", 0, [line(n) for n in range(1, 9)])
    assert sorted(key.batch for key in started(schedule, room=4)) == ["x", "x", "y", "y"]


def test_batches_take_turns_where_one_line_runs_at_a_time() -> None:
    schedule = Schedule()
    for id in ("x", "y"):
        schedule.add(id)
        schedule.loaded(id, 0, [line(n) for n in range(1, 4)])
    ran = []
    for _ in range(4):
        [key] = started(schedule, room=1)
        finish(schedule, key)
        ran.append(key.batch)
    assert ran == ["x", "y", "x", "y"]


def test_owners_share_what_there_is_however_many_batches_they_have() -> None:
    schedule = Schedule()
    for id, owner in (("x1", "x"), ("x2", "x"), ("x3", "x"), ("y", "y")):
        schedule.add(id, owner)
        schedule.loaded(id, 0, [line(n) for n in range(1, 9)])
    assert [key.batch for key in started(schedule, room=6)].count("y") == 3
    schedule.check_integrity()


def test_a_chunk_is_done_with_its_last_line() -> None:
    schedule = with_lines(line(1), line(2))
    schedule.loaded("b", 1, [line(3)])
    one, two = started(schedule)
    assert finish(schedule, two) is None
    assert finish(schedule, one) == 0
    [three] = started(schedule)
    assert finish(schedule, three) == 1
    assert schedule.num_loaded == 0
    schedule.remove("b")


def test_the_first_of_a_group_runs_alone() -> None:
    lines = [line(1, group=b"g"), line(2, group=b"g"), line(3, group=b"g"), line(4)]
    schedule = with_lines(*lines)
    one, four = started(schedule)
    assert (one.number, four.number) == (1, 4), "the others of the group wait"
    finish(schedule, one)
    assert [key.number for key in started(schedule)] == [2]
    assert [key.number for key in started(schedule, room=3)] == [3], "now it is computed"


def test_a_group_does_not_leave_slots_idle() -> None:
    schedule = with_lines(line(1, group=b"g"), line(2, group=b"g"))
    assert [key.number for key in started(schedule)] == [1, 2]


def test_a_line_runs_again_after_its_pause() -> None:
    schedule = with_lines(line(1))
    [key] = started(schedule)
    schedule.again(key, 5.0, for_all=False)
    assert schedule.next_deadline(0.0) == 5.0
    assert started(schedule, now=4.9) == []
    assert started(schedule, now=5.0) == [key]
    assert schedule.next_deadline(5.0) is None


def test_a_refusal_holds_up_the_whole_batch() -> None:
    schedule = with_lines(line(1), line(2))
    [key] = started(schedule, room=1)
    schedule.again(key, 5.0, for_all=True)
    assert started(schedule, now=1.0) == []
    assert schedule.next_deadline(1.0) == 5.0
    assert len(started(schedule, now=5.0)) == 2


def test_what_waits_can_be_withdrawn() -> None:
    schedule = with_lines(line(1), line(2), line(3))
    [one] = started(schedule, room=1)
    assert [each.number for each in schedule.withdraw("b")] == [2, 3]
    assert started(schedule, room=9) == []
    assert schedule.ended(LineKey("b", 2)) is None
    assert schedule.ended(LineKey("b", 3)) is None
    with pytest.raises(KeyError):
        schedule.ended(one)
    assert finish(schedule, one) == 0


def test_a_batch_goes_only_without_running_lines() -> None:
    schedule = with_lines(line(1))
    started(schedule)
    with pytest.raises(ValueError, match="lines of b run"):
        schedule.remove("b")


class ScheduleMachine(RuleBasedStateMachine):
    """Any history: no line is lost or runs twice, no room is overrun, none is idle in vain."""

    @initialize()
    def begin(self) -> None:
        self.schedule = Schedule()
        self.now = 0.0
        self.rooms = {"a": 2, "b": 1}
        self.numbers = 0
        self.chunks = 0
        self.running: dict[LineKey, Line] = {}
        self.settling: set[LineKey] = set()
        self.open: set[LineKey] = set()
        self.ids: set[str] = set()

    @precondition(lambda self: len(self.ids) < 3)
    @rule(id=st.sampled_from(["x", "y", "z"]))
    def add(self, id: str) -> None:
        if id not in self.ids:
            self.ids.add(id)
            self.schedule.add(id, "ann" if len(self.ids) % 2 else None)

    @precondition(lambda self: self.ids)
    @rule(
        data=st.data(),
        made=st.lists(
            st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([None, b"g", b"h"])), max_size=5
        ),
    )
    def load(self, data: st.DataObject, made: list[tuple[str, bytes | None]]) -> None:
        id = data.draw(st.sampled_from(sorted(self.ids)))
        self.chunks += 1
        lines = []
        for model, group in made:
            self.numbers += 1
            lines.append(line(self.numbers, model, group))
            self.open.add(LineKey(id, self.numbers))
        self.schedule.loaded(id, self.chunks, lines)

    @rule(passed=st.floats(0, 3))
    def next(self, passed: float) -> None:
        self.now += passed
        for key, each in all_next(self.schedule, self.now, self.room):
            assert key in self.open
            assert key not in self.running
            assert key not in self.settling
            self.running[key] = each

    def room(self, model: str | None) -> int:
        return self.rooms[model or ""]

    @rule(model=st.sampled_from(["a", "b"]), room=st.integers(0, 4))
    def change_room(self, model: str, room: int) -> None:
        self.rooms[model] = room

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["settle", "again", "pause"]))
    def stop_one(self, data: st.DataObject, how: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[key]
        if how == "settle":
            self.schedule.settle(key)
            self.settling.add(key)
        else:
            self.schedule.again(key, self.now + 1.0, for_all=how == "pause")

    @precondition(lambda self: self.settling)
    @rule(data=st.data())
    def end_one(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.settling)))
        self.settling.remove(key)
        self.open.remove(key)
        self.schedule.ended(key)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.ids)))
        self.settling |= {LineKey(id, each.number) for each in self.schedule.withdraw(id)}

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "schedule"):
            self.schedule.check_integrity()
            assert self.schedule.num_running == len(self.running)
            assert self.schedule.num_loaded == len(self.open)

    def teardown(self) -> None:
        """Everything ends: with room and time, each line that is open runs."""
        for key in list(self.running):
            self.schedule.settle(key)
            self.open.remove(key)
        for key in self.settling:
            self.open.remove(key)
        self.now += 100.0
        last = [key for key, _ in all_next(self.schedule, self.now, lambda _model: 10_000)]
        assert sorted(last) == sorted(self.open)


ScheduleMachine.TestCase.settings = settings(stateful_step_count=30)
TestSchedule = ScheduleMachine.TestCase


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
