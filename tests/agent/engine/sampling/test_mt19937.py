"""The draws of C++'s generator, whose ten thousandth number its standard names."""

import numpy as np

from arriero.agent.engine.sampling.mt19937 import Mt19937


def test_the_generator_is_the_standards() -> None:
    # [rand.predef] of the C++ standard: seed 5489, number 10,000.
    rng = Mt19937(5489)
    draws = [rng.draw_single() for _ in range(10_000)]
    assert draws[-1] == np.float32(4123659995) / np.float32(2**32)


def test_a_double_takes_two_numbers_the_low_one_first() -> None:
    raw = np.random.MT19937()
    raw.state = np.random.RandomState(7).get_state(legacy=False)
    low, high = raw.random_raw(), raw.random_raw()
    assert Mt19937(7).draw() == (low + high * 2**32) / 2**64


def test_draws_are_below_one() -> None:
    rng = Mt19937(3)
    assert all(0 <= rng.draw_single() < 1 for _ in range(1000))
    assert all(0 <= rng.draw() < 1 for _ in range(1000))


def test_skipped_draws_are_not_drawn_again() -> None:
    drawn, skipped = Mt19937(9), Mt19937(9)
    for _ in range(70_000):
        drawn.draw()
    skipped.skip(70_000)
    skipped.skip(0)
    assert skipped.draw() == drawn.draw()
