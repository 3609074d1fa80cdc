"""What the engine did, in numbers."""

from arriero.agent.engine.statistics import NOTHING_DONE, STALL_BOUNDS, Tally
from arriero.shared.reports.statistics import Cells, Histogram, Statistics

CELLS = Cells(total=100, used=40, kept=20, parked=5)


def summary(tally: Tally) -> Statistics:
    return tally.summary(num_running=2, num_waiting=1, cells=CELLS)


def test_without_steps_there_are_no_rates() -> None:
    statistics = Tally().summary(num_running=0, num_waiting=0, cells=Cells())
    assert statistics == NOTHING_DONE
    assert statistics.decode_tokens_per_second is None
    assert statistics.prefill_tokens_per_second is None
    assert statistics.tokens_per_second is None
    assert statistics.average_running is None


def test_rates_come_from_steps_of_their_own_kind() -> None:
    tally = Tally()
    tally.computed(num_generating=0, num_prompt_tokens=100, seconds=0.5)
    tally.computed(num_generating=4, num_prompt_tokens=0, seconds=0.1)
    tally.computed(num_generating=4, num_prompt_tokens=50, seconds=0.3)
    statistics = summary(tally)
    assert statistics.prefill_tokens_per_second == 200
    assert statistics.decode_tokens_per_second == 20
    assert statistics.computed_tokens == 150


def test_throughput_and_concurrency_by_the_wall_clock() -> None:
    tally = Tally()
    tally.passed(1.0, 4)
    tally.passed(3.0, 2)
    tally.gave(8)
    statistics = summary(tally)
    assert statistics.tokens_per_second == 2.0
    assert statistics.average_running == 2.5


def test_stalls_are_counted_by_length() -> None:
    tally = Tally()
    for seconds in (0.01, 0.05, 0.3, 99.0):
        tally.stalled(seconds)
    statistics = summary(tally)
    assert len(statistics.stalls.counts) == len(STALL_BOUNDS) + 1
    assert statistics.stalls.counts == (2, 0, 0, 1, 0, 0, 0, 0, 1)
    assert statistics.stalls.seconds == 0.01 + 0.05 + 0.3 + 99.0


def test_how_things_stand() -> None:
    tally = Tally()
    tally.shared(7)
    tally.preempted()
    statistics = summary(tally)
    assert statistics.cells == CELLS
    assert (statistics.num_running, statistics.num_waiting) == (2, 1)
    assert (statistics.cached_tokens, statistics.num_preemptions) == (7, 1)


def test_drafts_that_are_right_are_tokens_of_the_step_that_computed_them() -> None:
    tally = Tally()
    tally.computed(num_generating=1, num_prompt_tokens=0, seconds=0.5)
    tally.drafted(4, 2)
    tally.gave(3)
    statistics = summary(tally)
    assert (statistics.drafted_tokens, statistics.accepted_tokens) == (4, 2)
    assert statistics.decode_tokens_per_second == 6.0


def test_all_that_is_counted_is_reported() -> None:
    tally = Tally()
    tally.passed(4.0, 1)
    tally.passed(0.0, 2)
    tally.computed(num_generating=6, num_prompt_tokens=20, seconds=2.0)
    tally.computed(num_generating=0, num_prompt_tokens=30, seconds=0.5)
    tally.shared(40)
    tally.drafted(5, 4)
    tally.gave(12)
    tally.preempted()
    tally.stalled(9.0)
    assert summary(tally) == Statistics(
        num_running=2,
        num_waiting=1,
        num_commands=0,
        cells=CELLS,
        num_preemptions=1,
        cached_tokens=40,
        computed_tokens=50,
        completion_tokens=12,
        drafted_tokens=5,
        accepted_tokens=4,
        decode_tokens=10,
        decode_seconds=2.0,
        prefill_tokens=30,
        prefill_seconds=0.5,
        busy_seconds=4.0,
        decode_tokens_per_second=5.0,
        prefill_tokens_per_second=60.0,
        tokens_per_second=3.0,
        average_running=1.0,
        stalls=Histogram(bounds=STALL_BOUNDS, counts=(*(0,) * 7, 1, 0), seconds=9.0),
    )
