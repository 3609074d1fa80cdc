"""Requests above the class `batch`, counted by model."""

import pytest

from arriero.balancer.fleet.requests.fair_queue import foreground
from arriero.balancer.fleet.requests.fair_queue.foreground import Foreground
from arriero.balancer.fleet.view import ForegroundView
from arriero.shared.inference import RequestId

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
    monkeypatch.setattr(foreground, "MAX_MODELS", 2)
    seen = Foreground()
    for number in range(5):
        seen.came(RequestId(f"{number}"), f"m{number}", float(number))
    assert seen.view("m0", 9.0).seconds_since is None
    assert seen.view("m4", 9.0).seconds_since == 5.0
