"""Drafts are as long as brings the most tokens a second, and there are none where none pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.speculation.confidence import Confidence
from arriero.agent.engine.speculation.draft_worth import FIRST_CHUNK, MARGIN, DraftWorth, Round
from arriero.agent.engine.speculation.drafter import StepPrices

FREE = StepPrices(step=1.0, token=0.0, num_generating=1, most=1.0)


def confident(chance: float) -> Confidence:
    """So often the tokens of drafts were right."""
    confidence = Confidence()
    for number in range(400):
        is_right = int((number + 1) * chance) > int(number * chance)
        confidence.observe(0, 0.5, is_right=is_right)
        confidence.observe(1, 0.5, is_right=is_right)
    return confidence


def worth(chance: float, *, drafting: float, each: float = 0.0) -> DraftWorth:
    """Guesses for n sequences take `drafting + each * n` seconds."""
    made = DraftWorth(confident(chance))
    for count in (1, 2, 4, 8) * 50:
        made.computed(count, drafting + each * count, is_chunk=False)
    return made


def speed(gains: list[float], num_checked: int, prices: StepPrices, drafting: float) -> float:
    """Tokens a second of a round of drafts, and the step."""
    cost = len(gains) * (drafting + num_checked * prices.token)
    return (prices.num_generating + sum(gains)) / (prices.step + cost)


PRICES = st.builds(
    StepPrices,
    step=st.floats(0.01, 1),
    token=st.floats(0, 0.5),
    num_generating=st.integers(1, 8),
    most=st.just(1.0),
)


@given(PRICES, st.floats(0, 1), st.floats(0, 0.5), st.integers(1, 8))
def test_no_other_length_would_be_much_faster(
    prices: StepPrices, chance: float, drafting: float, num_drafted: int
) -> None:
    num_drafted = min(num_drafted, prices.num_generating)
    gains = [num_drafted * chance**place for place in range(1, 9)]
    round, length = Round(prices), 0
    while length < len(gains) and round.pays(gains[length], num_drafted, drafting):
        round.add(gains[length], num_drafted, drafting)
        length += 1
    speeds = [speed(gains[:end], num_drafted, prices, drafting) for end in range(len(gains) + 1)]
    assert speeds[length] >= speeds[0] * (1 - 1e-9)
    assert speeds[length] * MARGIN >= max(speeds) * (1 - 1e-9)
    assert round.tokens / round.seconds == pytest.approx(speeds[length])


def test_a_draft_model_as_dear_as_the_model_saves_nothing() -> None:
    assert worth(0.9, drafting=1.0).saving(1, 8, FREE) == 0
    assert worth(0.9, drafting=0.1).saving(1, 8, FREE) > 0.5


def test_what_is_hardly_ever_right_saves_nothing_however_cheap() -> None:
    checked = StepPrices(step=1.0, token=0.1, num_generating=1, most=1.0)
    assert worth(0.05, drafting=0.001).saving(1, 8, checked) == 0


def test_what_is_always_right_and_free_saves_all_but_one_step_of_nine() -> None:
    assert DraftWorth(confident(1.0)).saving(1, 8, FREE) == pytest.approx(8 / 9, abs=0.02)


def test_it_learns_what_guesses_cost() -> None:
    assert DraftWorth(Confidence()).step(3) == 0
    made = worth(0.5, drafting=0.1, each=0.01)
    assert made.step(8) == pytest.approx(0.18, rel=0.1)
    assert made.step(0) == 0


def test_chunks_are_as_long_as_time_allows() -> None:
    made = DraftWorth(Confidence())
    assert made.chunk_within(0.001, 500) == FIRST_CHUNK
    assert made.chunk_within(0.001, 5) == 5
    for _ in range(50):
        made.computed(64, 0.64, is_chunk=True)
    assert made.chunk_within(0.5, 500) == pytest.approx(50, abs=2)
    assert made.chunk_within(100.0, 500) == 500
    assert made.chunk_within(1e-9, 500) == 1


def test_catching_up_is_worth_what_the_sequence_is_thought_to_go_on_for() -> None:
    made = DraftWorth(Confidence())
    for _ in range(50):
        made.computed(100, 1.0, is_chunk=True)
    assert made.is_worth_catching_up(300, 0, saving=0.1)
    assert not made.is_worth_catching_up(400, 0, saving=0.1)
    assert made.is_worth_catching_up(400, 50, saving=0.1)
    assert not made.is_worth_catching_up(1, 1000, saving=0.0)
