from dataclasses import replace

import pytest

from bench.simulation.outcome import Outcome
from bench.simulation.result import Answer, mean_of, result_of, result_of_simulated

ANSWER = Answer(
    wait=1.0,
    first_token=1.5,
    total=4.0,
    num_prompt=100,
    num_cached=20,
    num_answer=50,
    reading_rate=None,
    generating_rate=None,
)


def test_figures_of_what_clients_saw() -> None:
    found = result_of([ANSWER, replace(ANSWER, wait=2.0, first_token=3.5, num_cached=0)], 5.0)
    assert found.throughput == 20.0
    assert (found.wait, found.first_token, found.p95_first_token) == (1.5, 2.5, 3.5)
    assert (found.reading, found.generating) == (1.0, 1.5)
    assert found.cached == pytest.approx(0.1)


def test_simulated_requests_have_the_same_figures() -> None:
    answers = [ANSWER, replace(ANSWER, first_token=2.0), replace(ANSWER, total=9.0)]
    outcome = Outcome(
        waits=[each.wait for each in answers],
        first_tokens=[each.first_token for each in answers],
        totals=[each.total for each in answers],
        num_prompt=300,
        num_cached=60,
        num_answer=150,
        seconds=10.0,
    )
    assert result_of_simulated(outcome) == result_of(answers, 10.0)


def test_the_mean_of_several_is_the_mean_of_each_figure() -> None:
    slow = replace(ANSWER, first_token=2.5, total=8.0)
    found = mean_of([result_of([ANSWER], 5.0), result_of([slow], 10.0)])
    assert found.throughput == pytest.approx(7.5)
    assert (found.first_token, found.total) == (2.0, 6.0)
