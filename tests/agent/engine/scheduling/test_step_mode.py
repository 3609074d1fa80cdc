"""What a step does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.scheduling.step_mode import StepMode


def test_little_is_read_beside() -> None:
    step_mode = StepMode(10)
    assert [
        step_mode.next(3, 7),
        step_mode.next(3, 7),
        step_mode.next(0, 50),
        step_mode.next(50, 0),
    ] == ["both"] * 4


def test_much_is_read_in_mixing() -> None:
    step_mode = StepMode(10)
    assert [step_mode.next(3, 8) for _ in range(4)] == ["read", "generate", "read", "generate"]


def test_streams_do_not_wait_twice_in_a_row() -> None:
    step_mode = StepMode(10)
    assert [step_mode.next(1, 20), step_mode.next(2, 0), step_mode.next(2, 20)] == [
        "read",
        "both",
        "read",
    ]


def test_nor_for_what_could_be_read_beside() -> None:
    step_mode = StepMode(10)
    assert [step_mode.next(3, 20), step_mode.next(3, 4), step_mode.next(3, 4)] == [
        "read",
        "generate",
        "both",
    ]


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


def test_where_mixing_gains_nothing_steps_take_turns() -> None:
    step_mode = StepMode(10, can_mix=False)
    modes = [step_mode.next(*each) for each in ((1, 1), (1, 1), (0, 5), (3, 0))]
    assert modes == ["read", "generate", "both", "both"]
