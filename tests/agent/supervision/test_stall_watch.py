import pytest

from arriero.agent.supervision.stall_watch import CHECKS, PATIENCE, StallWatch


def checked(watch: StallWatch, num: int, step: int | None = None, *, says: bool = False) -> None:
    for _ in range(num):
        if says:
            watch.heard(step)
        watch.check()


def test_a_step_that_does_not_end_stalls_and_is_overdue_later() -> None:
    watch = StallWatch(300.0)
    assert watch.pause == 7.5
    watch.heard(7)
    checked(watch, PATIENCE, 7, says=True)
    assert (watch.is_stalled, watch.issues) == (False, ())
    checked(watch, 1, 7, says=True)
    assert watch.is_stalled and not watch.is_overdue
    (issue,) = watch.issues
    assert issue.code == "engine_stalled"
    assert "for 30s" in issue.message and "after 5m" in issue.message
    assert "--step-timeout" in issue.hint
    checked(watch, CHECKS - PATIENCE, 7, says=True)
    assert watch.is_overdue
    assert watch.reason == "no step of the engine ended within 5m"


def test_an_engine_process_that_says_nothing_is_stalled_too() -> None:
    watch = StallWatch(1.0)
    watch.heard(None)
    checked(watch, PATIENCE + 1)
    assert watch.is_stalled


@pytest.mark.parametrize("step", [None, 8])
def test_whoever_gets_on_is_not_stalled_any_more(step: int | None) -> None:
    watch = StallWatch(1.0)
    watch.heard(7)
    checked(watch, 2 * PATIENCE, 7, says=True)
    assert watch.is_stalled
    watch.heard(step)
    assert (watch.is_stalled, watch.issues) == (False, ())


def test_an_idle_engine_is_never_stalled() -> None:
    watch = StallWatch(1.0)
    checked(watch, 3 * CHECKS, None, says=True)
    assert not watch.is_stalled


def test_time_in_which_nobody_looked_does_not_count() -> None:
    watch = StallWatch(0.001)
    watch.heard(7)
    watch.check()
    assert not watch.is_stalled
