"""What the engine did, in numbers."""

from arriero.agent.engine.statistics import STALL_BOUNDS, EngineStatistics, Tally


def summary(tally: Tally) -> EngineStatistics:
    return tally.summary(num_running=2, num_waiting=1, num_cells=100, used=60, kept=20, parked=5)


def test_without_steps_there_are_no_rates() -> None:
    statistics = EngineStatistics()
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
    assert statistics.prompt_tokens_computed == 150


def test_throughput_and_concurrency_by_the_wall_clock() -> None:
    tally = Tally()
    tally.passed(1.0, 4)
    tally.passed(3.0, 2)
    tally.gave(8)
    statistics = summary(tally)
    assert statistics.tokens_per_second == 2.0
    assert statistics.average_running == 2.5
    assert statistics.num_steps == 2


def test_stalls_are_counted_by_length() -> None:
    tally = Tally()
    for seconds in (0.01, 0.05, 0.3, 99.0):
        tally.stalled(seconds)
    statistics = summary(tally)
    assert len(statistics.stalls) == len(STALL_BOUNDS) + 1
    assert statistics.stalls == (2, 0, 0, 1, 0, 0, 0, 0, 1)
    assert statistics.stall_seconds == 0.01 + 0.05 + 0.3 + 99.0


def test_how_things_stand() -> None:
    tally = Tally()
    tally.shared(7)
    tally.preempted()
    statistics = summary(tally)
    assert (statistics.num_cells, statistics.num_cells_used, statistics.num_cells_kept) == (
        100,
        60,
        20,
    )
    assert (statistics.num_running, statistics.num_waiting) == (2, 1)
    assert (statistics.prompt_tokens_cached, statistics.num_preemptions) == (7, 1)


def test_drafts_that_are_right_are_tokens_of_the_step_that_computed_them() -> None:
    tally = Tally()
    tally.computed(num_generating=1, num_prompt_tokens=0, seconds=0.5)
    tally.drafted(4, 2)
    tally.gave(3)
    statistics = summary(tally)
    assert (statistics.num_drafted, statistics.num_accepted) == (4, 2)
    assert statistics.decode_tokens_per_second == 6.0
