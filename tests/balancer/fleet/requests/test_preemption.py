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
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.view import ForegroundView
from tests.balancer.fleet.builders import asking

KEYS: tuple[QueueKey, ...] = (None, "m")


class Scene:
    """A few requests, by their names."""

    def __init__(self) -> None:
        self.preemption = Preemption()
        self.requests: dict[str, Request] = {}

    def __getitem__(self, name: str) -> Request:
        if name not in self.requests:
            self.requests[name] = asking(name)
            self.requests[name].arrival = len(self.requests)
        return self.requests[name]

    def runs(self, name: str, keys: tuple[QueueKey, ...], at: float) -> None:
        self.preemption.runs(self[name], keys, at)

    def waits(self, name: str, key: QueueKey) -> None:
        self.preemption.waits(self[name], key)

    def stops(self, name: str) -> None:
        self.preemption.stops(self[name])

    def due(
        self, now: float, can_leave: Callable[[Request], bool] = lambda _: True
    ) -> list[Request]:
        asked = self.preemption.due(now, nothing_free, can_leave)
        self.preemption.check_integrity(self.requests.values())
        deadline = self.preemption.next_deadline(nothing_free)
        assert deadline is None or deadline > now, "it would be called for ever"
        return asked


def nothing_free(_key: QueueKey) -> bool:
    return False


def with_two() -> Scene:
    scene = Scene()
    scene.runs("a", KEYS, 5.0)
    scene.runs("b", KEYS, 3.0)
    return scene


def test_one_gives_way_for_each_that_waits_and_whose_time_came_first() -> None:
    scene = with_two()
    assert scene.preemption.next_deadline(nothing_free) is None
    scene.waits("w", "m")
    assert scene.preemption.next_deadline(nothing_free) == 3.0
    assert scene.due(2.9) == []
    assert scene.due(9.0) == ["b"]
    assert scene.due(9.0) == []
    scene.waits("x", None)
    assert scene.due(9.0) == ["a"]


def test_while_a_slot_is_free_nobody_has_to_go() -> None:
    scene = with_two()
    scene.waits("w", "m")
    assert scene.preemption.due(9.0, lambda _: True, lambda _: True) == []
    assert scene.preemption.next_deadline(lambda _: True) is None


def test_who_starts_meanwhile_needs_no_slot() -> None:
    scene = with_two()
    scene.waits("w", "m")
    scene.stops("w")
    assert scene.due(9.0) == []


def test_who_left_and_was_of_no_use_is_followed_by_another() -> None:
    scene = with_two()
    scene.waits("w", "m")
    assert scene.due(9.0) == ["b"]
    scene.stops("b")
    assert scene.due(9.0) == ["a"]


def test_what_runs_for_other_models_stays() -> None:
    scene = with_two()
    scene.waits("w", "n")
    assert scene.due(9.0) == []
    scene.waits("w", "m")
    assert scene.due(9.0) == ["b"]


def test_what_cannot_leave_is_passed_over() -> None:
    scene = with_two()
    scene.waits("w", "m")
    assert scene.due(9.0, lambda each: each != "b") == ["a"]


def test_an_agent_that_serves_something_else_now() -> None:
    scene = with_two()
    scene.runs("b", (), 3.0)
    scene.waits("w", "m")
    assert scene.due(4.0) == []
    assert scene.due(5.0) == ["a"]
    scene.runs("a", KEYS, 0.0)
    assert scene.due(5.0) == [], "it has been asked"


def test_each_run_lasts_longer_than_the_one_before() -> None:
    runs = [least_run(number) for number in range(40)]
    assert runs[:3] == [FIRST_RUN, 2 * FIRST_RUN, 4 * FIRST_RUN]
    assert runs == sorted(runs)
    assert runs[-1] == LONGEST_RUN


WANTED = st.sampled_from([None, "m", "n"])


@given(st.lists(WANTED, max_size=6), st.lists(WANTED, max_size=6))
def test_no_more_are_asked_than_wait(waiting: list[QueueKey], running: list[QueueKey]) -> None:
    scene = Scene()
    for number, key in enumerate(waiting):
        scene.waits(f"w{number}", key)
    for number, key in enumerate(running):
        scene.runs(f"r{number}", (None, key) if key else (None,), 1.0)
    asked = scene.due(1.0)
    assert len(asked) == len(set(asked)) <= len(waiting)
    left = set(range(len(running))) - {int(each.id[1:]) for each in asked}
    if None in waiting and len(asked) < len(waiting):
        assert not left or waiting.count(None) <= len(asked)


def test_who_names_no_model_counts_everywhere() -> None:
    seen = Foreground()
    assert seen.view("m", 5.0) == seen.view(None, 5.0) == ForegroundView()
    seen.came("m", 1.0)
    seen.came(None, 2.0)
    assert seen.view("m", 5.0) == ForegroundView(2, 3.0)
    assert seen.view("other", 5.0) == ForegroundView(1, 3.0)
    assert seen.view(None, 5.0) == ForegroundView(2, 3.0)


def test_who_left_is_remembered() -> None:
    seen = Foreground()
    seen.came("m", 1.0)
    seen.renamed("m", "n")
    seen.left("n")
    assert seen.view("m", 9.0) == ForegroundView(0, 8.0)
    assert len(seen) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "MAX_MODELS", 2)
    seen = Foreground()
    for number in range(5):
        seen.came(f"m{number}", float(number))
    assert seen.view("m0", 9.0).seconds_since is None
    assert seen.view("m4", 9.0).seconds_since == 5.0
