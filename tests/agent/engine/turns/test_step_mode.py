"""What a step does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.turns.step_mode import StepMode


@pytest.mark.parametrize(
    ("num_generating", "num_prompt_tokens", "is_alone"),
    [
        (3, 7, False),
        (0, 50, False),
        (50, 0, False),
        (3, 8, True),
        (1, 20, True),
    ],
)
def test_little_is_read_beside_and_much_alone(
    num_generating: int, num_prompt_tokens: int, is_alone: bool
) -> None:
    assert StepMode(10).reads_alone(num_generating, num_prompt_tokens) == is_alone


@pytest.mark.parametrize(
    ("most", "num_wanted", "count"),
    [(72, 1210, 58), (72, 1152, 64), (72, 66, 72), (150, 1152, 128), (63, 500, 63), (64, 65, 1)],
)
def test_what_fills_no_tile_is_read_first(most: int, num_wanted: int, count: int) -> None:
    assert StepMode(63).chunk(most, num_wanted) == count


@given(most=st.integers(1, 600), num_wanted=st.integers(1, 5000))
def test_every_chunk_is_some_of_the_prompt_and_the_last_ones_fill_tiles(
    most: int, num_wanted: int
) -> None:
    step_mode, chunks = StepMode(63), list[int]()
    while num_wanted:
        chunks.append(min(num_wanted, step_mode.chunk(most, num_wanted)))
        assert 0 < chunks[-1] <= most
        num_wanted -= chunks[-1]
    assert most < 64 or all(chunk % 64 == 0 for chunk in chunks[1:])


def test_where_mixing_gains_nothing_prompts_are_read_alone() -> None:
    step_mode = StepMode(10, can_mix=False)
    alone = [step_mode.reads_alone(*each) for each in ((1, 1), (0, 5), (3, 0))]
    assert alone == [True, False, False]


def test_media_are_read_alone() -> None:
    assert StepMode(10).reads_alone(1, 1, is_media=True)
    assert not StepMode(10).reads_alone(0, 1, is_media=True), "nobody is there beside"
