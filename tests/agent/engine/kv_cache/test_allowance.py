"""How much may be copied before a step."""

from arriero.agent.engine.kv_cache.allowance import LEAST_IN_PIECE, MOST_IN_PIECE, Allowance


def test_without_a_limit_pieces_are_as_large_as_can_be() -> None:
    allowance = Allowance()
    assert [allowance.take_some(MOST_IN_PIECE + 1) for _ in range(3)] == [MOST_IN_PIECE] * 3


def test_a_limit_is_for_all_pieces_before_a_step() -> None:
    allowance = Allowance()
    allowance.renew(800)
    assert [allowance.take_some(900) for _ in range(3)] == [MOST_IN_PIECE, 800 - MOST_IN_PIECE, 0]
    assert (allowance.num_moved, allowance.num_left) == (800, 0)
    allowance.renew(800)
    assert allowance.take_some(30) == 30


def test_some_cells_are_copied_before_each_step_however_low_the_limit() -> None:
    allowance = Allowance()
    for limit in (0, 10.5):
        allowance.renew(limit)
        assert [allowance.take_some(500) for _ in range(2)] == [LEAST_IN_PIECE, 0]


def test_a_piece_that_cannot_be_cut_may_be_large_if_it_is_the_first() -> None:
    allowance = Allowance()
    allowance.renew(10, 500)
    assert [allowance.has_room(count) for count in (0, 10, 500, 501)] == [True, True, True, False]
    allowance.take(4)
    assert [allowance.has_room(count) for count in (0, 6, 7)] == [True, True, False]


def test_what_is_copied_in_any_case_counts_before_the_next_step() -> None:
    allowance = Allowance()
    allowance.renew(100)
    allowance.owe(30)
    allowance.owe(80)
    assert allowance.num_left == 100
    allowance.renew(100)
    assert (allowance.num_moved, allowance.take_some(50)) == (110, 0)
    allowance.renew(100)
    assert allowance.take_some(50) == 50
