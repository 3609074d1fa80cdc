"""How often a draft model is right is learnt, whatever it believes of itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.speculation.confidence import PRIOR, PROVEN, Confidence

SHARES = st.floats(0, 1)


def after(count: int, *, believed: float, is_right: bool, place: int = 0) -> Confidence:
    confidence = Confidence()
    for _ in range(count):
        confidence.observe(place, believed, is_right=is_right)
    return confidence


def test_before_anything_is_known_the_model_is_believed() -> None:
    confidence = Confidence()
    assert confidence.chance(0.96) > confidence.chance(0.55) > confidence.chance(0.05)
    assert confidence.expected(0) == confidence.expected(3) == pytest.approx(PRIOR)


def test_one_that_is_sure_and_wrong_is_not_believed_for_long() -> None:
    confidence = after(40, believed=0.97, is_right=False)
    assert confidence.chance(0.97) < 0.1
    assert confidence.expected(0) < 0.1
    assert confidence.chance(0.55) == Confidence().chance(0.55), "of that kind nothing was seen"


def test_it_changes_its_mind() -> None:
    confidence = after(200, believed=0.5, is_right=False)
    for _ in range(200):
        confidence.observe(0, 0.5, is_right=True)
    assert confidence.chance(0.5) > 0.9


def test_the_first_token_and_those_after_it_are_told_apart() -> None:
    confidence = after(40, believed=0.9, is_right=False)
    for _ in range(40):
        confidence.observe(1, 0.9, is_right=True)
    assert confidence.expected(0) < 0.1 < 0.9 < confidence.expected(1) == confidence.expected(7)


def test_it_hopes_for_as_much_as_came_before() -> None:
    assert Confidence().hope(0) == 0
    assert Confidence().hope(2) == pytest.approx(PRIOR + PRIOR**2)
    assert after(40, believed=0.9, is_right=False).hope(8) < 0.5


def test_it_is_proven_after_enough_was_seen() -> None:
    assert not after(PROVEN - 1, believed=0.5, is_right=True).is_proven
    assert after(PROVEN, believed=0.5, is_right=False).is_proven


@given(st.lists(st.tuples(st.integers(0, 9), SHARES, st.booleans()), max_size=60), SHARES)
def test_chances_are_chances(seen: list[tuple[int, float, bool]], believed: float) -> None:
    confidence = Confidence()
    for place, chance, is_right in seen:
        confidence.observe(place, chance, is_right=is_right)
    assert 0 <= confidence.chance(believed) <= 1
    assert 0 <= confidence.expected(0) <= 1
    assert 0 <= confidence.hope(8) <= 8
