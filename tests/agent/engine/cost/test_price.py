"""A ratio of what was observed, the latest counting most."""

import pytest

from arriero.agent.engine.cost.price import Price


def test_nothing_is_known_at_first() -> None:
    price = Price(forgetting=0.5)
    assert (price.is_known, price.value) == (False, 0.0)
    price.observe(0.0, 0.0)
    assert not price.is_known


def test_what_is_assumed_counts_as_some_observations() -> None:
    price = Price(forgetting=1.0, assumed=0.5, weight=2.0)
    assert price.value == 0.5
    price.observe(1.0)
    assert price.value == pytest.approx(2 / 3)


def test_what_comes_later_counts_more() -> None:
    price = Price(forgetting=0.5)
    price.observe(8.0, 2.0)
    assert price.value == 4.0
    price.observe(2.0, 2.0)
    assert price.value == pytest.approx(6 / 3)
