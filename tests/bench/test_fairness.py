"""What the queue's benchmark shows, in small."""

import pytest

from bench.fairness import Load, jain, main, run

ALIKE = Load(entries=128, callers=3, slots=2, seconds=40.0)
BESIDE = Load(
    entries=128, callers=3, slots=2, seconds=40.0, batch="batch", single="interactive", pause=5.0
)


def test_jains_index_is_1_for_equal_shares_and_1_by_n_for_one_that_has_all() -> None:
    assert jain([3, 3, 3, 3]) == 1.0
    assert jain([12, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 1.0


def test_callers_get_equal_shares_beside_a_batch_and_nothing_without_fairness() -> None:
    plain, fair = (run(ALIKE, 1, is_fair=is_fair) for is_fair in (False, True))
    assert plain.jain == 0.25, "the batch has all"
    assert fair.jain > 0.95
    assert fair.p95 < plain.p95 == ALIKE.seconds


def test_interactive_requests_wait_for_a_slot_and_not_for_the_batch() -> None:
    plain, fair = (run(BESIDE, 1, is_fair=is_fair) for is_fair in (False, True))
    assert fair.p95 < 3.0 < plain.p95


def test_a_seed_decides_everything() -> None:
    assert run(ALIKE, 1, is_fair=True) == run(ALIKE, 1, is_fair=True)
    assert run(ALIKE, 1, is_fair=True) != run(ALIKE, 2, is_fair=True)


def test_the_table_has_both_queues(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--entries", "64", "--callers", "3", "--slots", "1"])
    told = capsys.readouterr().out
    assert told.count("first come, first served") == 2
    assert told.count("fair") == 2
