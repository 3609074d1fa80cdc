import pytest

from arriero.balancer.fleet.requests.slot_times import MAX_MODELS, SlotTimes


def test_nothing_is_known_before_a_request_has_ended() -> None:
    times = SlotTimes()
    assert times.mean("m") is None
    assert times.mean(None) is None


def test_the_mean_of_each_model_and_of_all() -> None:
    times = SlotTimes()
    for seconds in (2.0, 4.0):
        times.ended("m", seconds)
    times.ended("n", 9.0)
    assert times.mean("m") == pytest.approx(3.0)
    assert times.mean("n") == pytest.approx(9.0)
    assert times.mean(None) == pytest.approx(5.0)


def test_what_is_long_ago_counts_less() -> None:
    times = SlotTimes()
    for _ in range(100):
        times.ended("m", 1.0)
    for _ in range(50):
        times.ended("m", 10.0)
    mean = times.mean("m")
    assert mean is not None
    assert mean > 9


def test_the_models_are_bounded_and_those_in_use_stay() -> None:
    times = SlotTimes()
    for number in range(2 * MAX_MODELS):
        times.ended(f"m{number}", 1.0)
        times.ended("used", 2.0)
    assert len(times) == MAX_MODELS
    assert times.mean("used") == 2.0
    assert times.mean("m0") is None
