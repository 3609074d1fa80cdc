"""How fast agents are."""

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing import rates
from arriero.balancer.fleet.routing.rates import UNKNOWN, Average, Measurement, Speeds
from arriero.shared.inference import Rates, Usage

A, B = LinkId(1), LinkId(2)


def end(
    prefill: float | None = 100.0,
    decode: float | None = 20.0,
    *,
    prompt: int = 100,
    cached: int = 0,
    running: int = 1,
) -> Measurement:
    return Measurement(
        Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=10),
        Rates(prefill_tokens_per_second=prefill, decode_tokens_per_second=decode),
        running=running,
        seconds=2.0,
    )


def test_before_anything_was_measured_all_are_alike() -> None:
    speeds = Speeds()
    assert speeds.of(A, "m") == UNKNOWN
    assert not speeds.is_known("m")
    assert len(speeds) == 0


def test_an_agent_is_known_by_what_it_did_and_others_by_the_average() -> None:
    speeds = Speeds()
    speeds.ended(A, "m", end(prefill=100.0, decode=20.0))
    speeds.ended(B, "m", end(prefill=400.0, decode=40.0))
    assert speeds.of(A, "m").prefill == pytest.approx(100.0)
    assert speeds.of(A, "m").token_seconds == pytest.approx(0.05)
    mean = speeds.of(LinkId(3), "m")
    assert 100 < mean.prefill < 400
    assert 0.025 < mean.token_seconds < 0.05
    assert speeds.of(LinkId(3), "other") == UNKNOWN


def test_long_prompts_tell_more_of_a_rate_than_short_ones() -> None:
    speeds = Speeds()
    speeds.ended(A, "m", end(prefill=500.0, prompt=1000))
    speeds.ended(A, "m", end(prefill=5.0, prompt=2))
    assert speeds.of(A, "m").prefill > 250


def test_the_more_run_at_once_the_slower_is_each() -> None:
    speeds = Speeds()
    speeds.ended(A, "m", end(decode=10.0, running=4))
    speed = speeds.of(A, "m")
    assert speed.seconds_per_token(4) == pytest.approx(0.1)
    assert speed.seconds_per_token(1) < 0.1 < speed.seconds_per_token(8)


def test_what_an_agent_does_not_tell_stays_as_it_was() -> None:
    speeds = Speeds()
    speeds.ended(A, "m", end(prefill=None, decode=None))
    assert not speeds.is_known("m")
    assert speeds.of(A, "m").prefill == UNKNOWN.prefill
    assert speeds.of(A, "m").slot_seconds == 2.0


def test_a_change_of_the_average_is_told_and_noise_is_not() -> None:
    speeds = Speeds()
    assert speeds.ended(A, "m", end())
    assert not speeds.ended(A, "m", end(prefill=105.0))
    assert any(speeds.ended(A, "m", end(prefill=10.0, decode=2.0)) for _ in range(9))


def test_trust_falls_with_what_was_not_there_and_returns() -> None:
    speeds = Speeds()
    for _ in range(20):
        speeds.found(A, expected=1000.0, cached=100)
    assert speeds.of(A, "m").hit_rate == pytest.approx(0.1, abs=0.02)
    assert speeds.of(B, "m").hit_rate == 1.0
    for _ in range(20):
        speeds.found(A, expected=1000.0, cached=4000)
    assert speeds.of(A, "m").hit_rate > 0.85


def test_the_share_that_was_cached_and_answers_are_averages() -> None:
    speeds = Speeds()
    speeds.ended(A, "m", end(prompt=100, cached=80))
    assert speeds.of(A, "m").reuse == pytest.approx(0.8)
    assert speeds.answer_tokens("m") == pytest.approx(10)
    assert speeds.computed_tokens("m") == pytest.approx(20)
    speeds.prompt_read("m", 50, 100)
    assert speeds.tokens_per_byte("m") == pytest.approx(0.5)


def test_an_agent_that_left_is_forgotten_and_models_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "MAX_MODELS", 3)
    speeds = Speeds()
    for number in range(9):
        speeds.ended(A, f"m{number}", end(prefill=1.0 + number))
    speeds.forget(A)
    assert len(speeds) == 3
    assert speeds.of(A, "m8").prefill == pytest.approx(9.0)


def test_an_average_fades() -> None:
    average = Average()
    assert average.value(7.0) == 7.0
    for amount in (0.0, *[10.0] * 30):
        average.add(amount)
    assert average.value(0.0) == pytest.approx(10.0, abs=0.5)
