"""Learning what a step costs."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.step_cost import StepCost

counts = st.tuples(st.integers(0, 8), st.integers(0, 512)).filter(any)


def learn(steps: list[tuple[int, int]], fixed: float, generated: float, prompt: float) -> StepCost:
    cost = StepCost()
    for num_generating, num_prompt_tokens in steps:
        seconds = fixed + generated * num_generating + prompt * num_prompt_tokens
        cost.observe(
            num_generating=num_generating, num_prompt_tokens=num_prompt_tokens, seconds=seconds
        )
    return cost


def test_nothing_is_known_at_first() -> None:
    cost = StepCost()
    assert cost.predict(num_generating=8, num_prompt_tokens=100) == 0
    assert cost.prompt_tokens_within(0.5, num_generating=8, most=100) == 0


def test_prices_are_found() -> None:
    random = Random(1)
    steps = [(random.randint(0, 8), random.choice([0, 0, 32, 128])) for _ in range(300)]
    cost = learn([one for one in steps if any(one)], 0.02, 0.01, 0.004)
    assert cost.predict(num_generating=7, num_prompt_tokens=0) == pytest.approx(0.09, rel=0.05)
    assert cost.predict(num_generating=7, num_prompt_tokens=100) == pytest.approx(0.49, rel=0.05)
    tokens = cost.prompt_tokens_within(0.49, num_generating=7, most=2048)
    assert tokens == pytest.approx(100, abs=6)


def test_the_first_prompt_already_prices_the_next() -> None:
    cost = learn([(0, 512)], 0.0, 0.0, 0.004)
    assert cost.prompt_tokens_within(0.4, num_generating=0, most=2048) == 100


def test_a_batch_that_fits_whole_is_not_cut() -> None:
    cost = learn([(0, 512)], 0.0, 0.0, 0.0001)
    assert cost.prompt_tokens_within(0.5, num_generating=0, most=2048) == 2048


def test_a_step_that_is_too_slow_anyway_leaves_nothing() -> None:
    cost = learn([(0, 512), *[(1, 0)] * 50], 0.0, 0.6, 0.004)
    assert cost.prompt_tokens_within(0.5, num_generating=1, most=2048) == 0


def test_prompts_are_not_forgotten_while_there_are_none() -> None:
    cost = learn([(0, 512), *[(8, 0)] * 50_000], 0.0, 0.01, 0.004)
    tokens = cost.prompt_tokens_within(0.48, num_generating=8, most=2048)
    assert tokens == pytest.approx(100, abs=2)


def test_a_host_that_slows_down_is_noticed() -> None:
    cost = learn([(0, 512), *[(4, 64)] * 100], 0.0, 0.01, 0.002)
    for _ in range(100):
        cost.observe(num_generating=4, num_prompt_tokens=64, seconds=1.0)
    assert cost.predict(num_generating=4, num_prompt_tokens=64) == pytest.approx(1.0, rel=0.1)


@given(steps=st.lists(st.tuples(counts, st.floats(0, 1e3)), max_size=40))
def test_nothing_ever_costs_less_than_nothing(
    steps: list[tuple[tuple[int, int], float]],
) -> None:
    cost = StepCost()
    for (num_generating, num_prompt_tokens), seconds in steps:
        cost.observe(
            num_generating=num_generating, num_prompt_tokens=num_prompt_tokens, seconds=seconds
        )
    least = cost.predict(num_generating=0, num_prompt_tokens=0)
    assert 0 <= least <= cost.predict(num_generating=1, num_prompt_tokens=0)
    assert least <= cost.predict(num_generating=0, num_prompt_tokens=1)
    assert 0 <= cost.prompt_tokens_within(0.5, num_generating=1, most=64) <= 64
