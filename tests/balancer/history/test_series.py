"""The steps and their ages."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.history.series import (
    MAX_NAMES,
    OTHERS,
    Levels,
    Series,
    beside,
    bounded,
    from_saved,
    join,
    to_saved,
)
from arriero.balancer.store.records import SavedStep
from tests.balancer.history.builders import step, sums

NOON = 12 * 3600


def levels_of(queue: int, busy: int, agents: int) -> Levels:
    return Levels(
        queue_depth=queue, queue_peak=queue, slots_busy=busy, slots_total=8, agents=agents
    )


def filled(*times: int) -> Series:
    series = Series()
    for at in times:
        series.add(step(at))
    series.check_integrity()
    return series


def test_a_minute_is_made_when_it_has_passed() -> None:
    series = Series()
    made = {at: series.add(step(at, tokens=at)) for at in range(NOON + 30, NOON + 121)}
    assert {at for at, minutes in made.items() if minutes} == {NOON + 60, NOON + 120}
    [first] = made[NOON + 60]
    assert (first.at, first.seconds) == (NOON, 30)
    assert first.fleet.completion_tokens == sum(range(NOON + 30, NOON + 60))
    assert [each.at for each in series.minutes] == [NOON, NOON + 60]


def test_a_minute_is_made_after_a_pause_too() -> None:
    series = filled(NOON + 10)
    [minute] = series.add(step(NOON + 7200))
    assert (minute.at, minute.seconds) == (NOON, 1)


def test_an_older_step_is_ignored() -> None:
    series = filled(NOON, NOON + 1)
    assert series.add(step(NOON + 1, tokens=99)) == []
    assert series.add(step(NOON, tokens=99)) == []
    assert [each.fleet.completion_tokens for each in series.seconds] == [1, 1]


def test_an_hour_of_seconds_and_a_day_of_minutes() -> None:
    series = filled(*range(NOON, NOON + 3700))
    assert (len(series.seconds), series.seconds[0].at) == (3600, NOON + 100)
    series = Series()
    for minute in range(1500):
        series.add(step(60 * minute))
    assert (len(series.minutes), series.minutes[0].at) == (1440, 60 * (1499 - 1440))


def test_seconds_are_taken_as_far_back_as_they_go() -> None:
    series = filled(*range(NOON, NOON + 3700))
    recent = series.since(NOON + 3690)
    assert ([each.at for each in recent.steps], recent.width) == (
        list(range(NOON + 3690, NOON + 3700)),
        1,
    )
    older = series.since(NOON)
    assert older.width == 60
    assert [each.at for each in older.steps[:3]] == [NOON, NOON + 100, NOON + 101]


def test_of_a_young_balancer_there_are_seconds_only() -> None:
    series = filled(*range(NOON + 30, NOON + 300))
    assert series.since(0).width == 1
    assert len(series.since(0).steps) == 270
    assert Series().since(0).steps == ()


def test_what_was_kept_goes_on() -> None:
    """The minute in which the balancer was restarted is made of seconds before and after."""
    before = filled(*range(NOON, NOON + 90))
    after = Series()
    after.restore(before.seconds, before.minutes)
    assert after.add(step(NOON + 100)) == []
    [minute] = after.add(step(NOON + 120))
    assert (minute.at, minute.seconds) == (NOON + 60, 31)
    after.check_integrity()


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60))
def test_nothing_is_counted_twice_or_lost(pauses: list[int]) -> None:
    at, series = NOON, Series()
    for pause in pauses:
        at += pause
        series.add(step(at))
        series.check_integrity()
    assert sum(each.fleet.completion_tokens for each in series.since(0).steps) == len(pauses)
    last_minute = [each for each in series.seconds if each.at >= at - at % 60]
    num_in_minutes = sum(each.fleet.completion_tokens for each in series.minutes)
    assert num_in_minutes + len(last_minute) == len(pauses)


def test_levels_are_means_and_the_queues_peak_is_kept() -> None:
    joined = join([step(0, queue=1), step(1, queue=6)], 0)
    assert joined.levels == Levels(queue_depth=3.5, queue_peak=6)
    assert (joined.at, joined.seconds) == (0, 2)


def test_agents_are_added_by_name() -> None:
    joined = join([step(0, ana=1, luz=5), step(1, ana=2)], 0)
    assert joined.agents == {"ana": sums(3), "luz": sums(5)}


def test_the_number_of_names_is_bounded() -> None:
    many = {f"a{number}": sums(number) for number in range(100)} | {OTHERS: sums(1000)}
    kept = bounded(many)
    assert len(kept) == MAX_NAMES
    assert "a99" in kept
    assert "a0" not in kept
    assert sum(each.completion_tokens for each in kept.values()) == sum(range(100)) + 1000


def test_what_is_beside_each_other_is_of_one_time() -> None:
    here = replace(step(0, 5, queue=1, ana=5), levels=levels_of(1, 2, 3))
    there = replace(step(0, 7, queue=6, ana=3, luz=4), levels=levels_of(6, 3, 2))
    both = beside([here, there])
    assert (both.at, both.seconds, both.fleet.completion_tokens) == (0, 1, 12)
    assert both.agents == {"ana": sums(8), "luz": sums(4)}
    assert both.levels == Levels(
        queue_depth=7, queue_peak=7, slots_busy=5, slots_total=8, agents=3
    ), "each has a queue and took slots; all see the same agents"
    assert beside([here]) is here


def test_a_mean_counts_for_as_long_as_it_is_of() -> None:
    long, short = step(0, seconds=60, queue=4), step(0, seconds=15, queue=8)
    both = beside([long, short])
    assert (both.seconds, both.levels.queue_depth) == (60, 6)


def test_a_minute_that_has_begun() -> None:
    series = filled(*range(NOON, NOON + 90))
    [begun] = series.begun_minutes()
    assert (begun.at, begun.seconds) == (NOON + 60, 30)
    assert Series().begun_minutes() == []


def test_the_latest_seconds() -> None:
    series = filled(*range(NOON, NOON + 100, 2))

    def latest(most: int, since: int) -> list[int]:
        return [each.at for each in series.latest_seconds(most, since)]

    assert latest(3, NOON) == [NOON + 94, NOON + 96, NOON + 98]
    assert latest(30, NOON + 95) == [NOON + 96, NOON + 98]
    assert latest(1000, 0) == list(range(NOON, NOON + 100, 2))
    assert latest(3, NOON + 99) == []


def test_a_step_comes_back() -> None:
    there = step(120, 7, queue=3, ana=1)
    there.models["tiny"] = sums(3, 0.01, 0.5, stop=2)
    saved = to_saved(there, 1)
    assert (saved.width, saved.at) == (1, 120)
    assert from_saved(saved) == there


def test_what_cannot_be_read_is_left_out() -> None:
    assert from_saved(SavedStep(1, 1, "{}")) is None
    assert from_saved(SavedStep(1, 1, "not JSON")) is None
    assert from_saved(SavedStep(1, 99, to_saved(step(1), 1).document)) is None
