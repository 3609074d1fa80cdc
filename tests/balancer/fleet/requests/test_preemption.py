from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.requests import preemption
from arriero.balancer.fleet.requests.eligibility import QueueKey
from arriero.balancer.fleet.requests.preemption import (
    FIRST_RUN,
    LONGEST_RUN,
    Foreground,
    Preemption,
    least_run,
)
from arriero.balancer.fleet.view import ForegroundView
from arriero.shared.inference import RequestId

A, B, C, W, X = (RequestId(name) for name in "abcwx")
KEYS: tuple[QueueKey, ...] = (None, "m")


def nothing_free(_key: QueueKey) -> bool:
    return False


def anybody(_id: RequestId) -> bool:
    return True


def due(
    preemption: Preemption, now: float, can_leave: Callable[[RequestId], bool] = anybody
) -> list[RequestId]:
    ids = preemption.due(now, nothing_free, can_leave)
    preemption.check_integrity()
    deadline = preemption.next_deadline(nothing_free)
    assert deadline is None or deadline > now, "it would be called for ever"
    return ids


def with_two() -> Preemption:
    preemption = Preemption()
    preemption.runs(A, KEYS, 5.0)
    preemption.runs(B, KEYS, 3.0)
    return preemption


def test_one_gives_way_for_each_that_waits_and_whose_time_came_first() -> None:
    preemption = with_two()
    assert preemption.next_deadline(nothing_free) is None
    preemption.waits(W, "m")
    assert preemption.next_deadline(nothing_free) == 3.0
    assert due(preemption, 2.9) == []
    assert due(preemption, 9.0) == [B]
    assert due(preemption, 9.0) == []
    assert preemption.num_asked == 1
    preemption.waits(X, None)
    assert due(preemption, 9.0) == [A]


def test_while_a_slot_is_free_nobody_has_to_go() -> None:
    preemption = with_two()
    preemption.waits(W, "m")
    assert preemption.due(9.0, lambda _: True, anybody) == []
    assert preemption.next_deadline(lambda _: True) is None


def test_who_starts_meanwhile_needs_no_slot() -> None:
    preemption = with_two()
    preemption.waits(W, "m")
    preemption.stops(W)
    assert due(preemption, 9.0) == []


def test_who_left_and_was_of_no_use_is_followed_by_another() -> None:
    preemption = with_two()
    preemption.waits(W, "m")
    assert due(preemption, 9.0) == [B]
    preemption.stops(B)
    assert due(preemption, 9.0) == [A]


def test_what_runs_for_other_models_stays() -> None:
    preemption = with_two()
    preemption.waits(W, "n")
    assert due(preemption, 9.0) == []
    preemption.waits(W, "m")
    assert due(preemption, 9.0) == [B]


def test_what_cannot_leave_is_passed_over() -> None:
    preemption = with_two()
    preemption.waits(W, "m")
    assert due(preemption, 9.0, lambda id: id != B) == [A]


def test_an_agent_that_serves_something_else_now() -> None:
    preemption = with_two()
    preemption.runs(B, (), 3.0)
    preemption.waits(W, "m")
    assert due(preemption, 4.0) == []
    assert due(preemption, 5.0) == [A]
    preemption.runs(A, KEYS, 0.0)
    assert due(preemption, 5.0) == [], "it has been asked"


def test_each_run_lasts_longer_than_the_one_before() -> None:
    runs = [least_run(number) for number in range(40)]
    assert runs[:3] == [FIRST_RUN, 2 * FIRST_RUN, 4 * FIRST_RUN]
    assert runs == sorted(runs)
    assert runs[-1] == LONGEST_RUN


WANTED = st.sampled_from([None, "m", "n"])


@given(st.lists(WANTED, max_size=6), st.lists(WANTED, max_size=6))
def test_no_more_are_asked_than_wait(waiting: list[QueueKey], running: list[QueueKey]) -> None:
    preemption = Preemption()
    for number, key in enumerate(waiting):
        preemption.waits(RequestId(f"w{number}"), key)
    for number, key in enumerate(running):
        preemption.runs(RequestId(f"r{number}"), (None, key) if key else (None,), 1.0)
    asked = due(preemption, 1.0)
    assert len(asked) == len(set(asked)) <= len(waiting)
    left = set(range(len(running))) - {int(id[1:]) for id in asked}
    if None in waiting and len(asked) < len(waiting):
        assert not left or waiting.count(None) <= len(asked)


ONE, TWO = RequestId("1"), RequestId("2")


def test_who_names_no_model_counts_everywhere() -> None:
    seen = Foreground()
    assert seen.view("m", 5.0) == seen.view(None, 5.0) == ForegroundView()
    seen.came(ONE, "m", 1.0)
    seen.came(TWO, None, 2.0)
    assert seen.view("m", 5.0) == ForegroundView(2, 3.0)
    assert seen.view("other", 5.0) == ForegroundView(1, 3.0)
    assert seen.view(None, 5.0) == ForegroundView(2, 3.0)


def test_who_left_is_remembered() -> None:
    seen = Foreground()
    seen.came(ONE, "m", 1.0)
    seen.left(ONE)
    seen.left(ONE)
    seen.left(TWO)
    assert seen.view("m", 9.0) == ForegroundView(0, 8.0)
    assert len(seen) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "MAX_MODELS", 2)
    seen = Foreground()
    for number in range(5):
        seen.came(RequestId(f"{number}"), f"m{number}", float(number))
    assert seen.view("m0", 9.0).seconds_since is None
    assert seen.view("m4", 9.0).seconds_since == 5.0
