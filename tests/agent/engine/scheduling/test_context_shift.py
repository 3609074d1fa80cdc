"""What is kept when the ceiling is reached."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.scheduling.context_shift import Window, open_window
from arriero.agent.engine.sequence import ContextShift


def numbered(length: int) -> Prompt:
    return Prompt(tuple(range(length)))


def test_a_short_prompt_stays_as_it_is() -> None:
    window, notices = open_window(ContextShift(2, 4), 10, 9)
    assert (window, notices) == (Window(10, 2, 4), ())
    assert window.fit(numbered(9)) == numbered(9)


def test_a_long_prompt_loses_its_oldest_part_after_the_head() -> None:
    window, notices = open_window(ContextShift(2, 4), 10, 15)
    assert window.fit(numbered(15)) == Prompt((0, 1, *range(10, 15)))
    assert [notice.code for notice in notices] == ["prompt_shifted"]
    assert "15 tokens and the window 10: 8 were discarded after the first 2" in notices[0].message


def test_what_is_more_than_can_go_is_clamped_and_said() -> None:
    window, notices = open_window(ContextShift(2, 100), 10, 5)
    assert window == Window(10, 2, 7)
    assert [notice.code for notice in notices] == ["n_discard_clamped"]
    assert "100 is too many" in notices[0].message


def test_a_head_leaves_half_of_the_window() -> None:
    assert open_window(ContextShift(100, 3), 10, 5)[0] == Window(10, 5, 3)
    assert open_window(ContextShift(0, 3), 10, 5)[0].num_kept == 1


@given(
    kept=st.integers(0, 60),
    discarded=st.integers(1, 60),
    ceiling=st.integers(4, 40),
    length=st.integers(1, 200),
)
def test_it_always_fits(kept: int, discarded: int, ceiling: int, length: int) -> None:
    window, _ = open_window(ContextShift(kept, discarded), ceiling, length)
    assert 1 <= window.num_kept <= ceiling // 2
    assert 1 <= window.num_discarded <= ceiling - window.num_kept - 1
    left = window.fit(numbered(length)).tokens
    assert 1 <= len(left) < ceiling
    assert left[-1] == length - 1
    assert left[: window.num_kept] == tuple(range(length))[: window.num_kept]
    assert (length - len(left)) % window.num_discarded == 0
    assert length - len(left) == window.num_gone(length)


def test_a_client_is_told_where_a_window_that_has_moved_is_computed_anew() -> None:
    shift = ContextShift(2, 4)
    assert open_window(shift, 10, 5, 4)[1] == ()
    _, [notice] = open_window(shift, 10, 5, 5)
    assert notice.code == "resumed_anew"
    _, [told] = open_window(shift, 10, 12, 1)
    assert told.code == "prompt_shifted", "only the prompt has moved"
