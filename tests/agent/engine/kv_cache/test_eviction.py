"""Who has to leave the cells, how much at once, and where it goes."""

import pytest

from arriero.agent.engine.kv_cache.allowance import LEAST_IN_PIECE, MOST_IN_PIECE
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.step import Clear, Offload


def full(*lengths: int, most_parked: int = 4000) -> UnifiedMemory:
    """A memory that kept prefixes of these lengths fill, none of them used by anybody."""
    memory = UnifiedMemory(
        slots=2,
        holders=8,
        num_cells=sum(lengths),
        can_share=True,
        most_parked=most_parked,
    )
    for token, length in enumerate(lengths):
        keys = [token] * length
        memory.enter(0, keys, memory.find(keys, length))
        memory.grow(0, length)
        memory.leave(0)
    memory.take_edits()
    return memory


def test_no_more_is_parked_for_a_prompt_than_may_be_copied_before_a_step() -> None:
    memory = full(1000)
    num_parked = []
    for _ in range(3):
        memory.allowance.renew(150)
        memory.make_room(400, num_urgent=1)
        num_parked.append(memory.allowance.num_moved)
        memory.check_integrity()
    assert num_parked == [150, 150, 100]
    assert memory.num_free == memory.num_parked == 400


def test_what_was_copied_for_others_counts() -> None:
    memory = full(1000)
    memory.allowance.renew(150)
    memory.allowance.take(120)
    assert memory.make_room(400, num_urgent=0) == 30
    assert memory.make_room(400, num_urgent=0) == 30, "no more before this step"


@pytest.mark.parametrize("num_taken", [0, 150])
def test_what_is_urgent_is_parked_whatever_was_copied(num_taken: int) -> None:
    memory = full(1000)
    memory.allowance.renew(150)
    memory.allowance.take(num_taken)
    assert memory.make_room(700, num_urgent=7) == max(7, 150 - num_taken)


def test_what_prefixes_share_is_not_copied_in_tiny_pieces_for_the_sake_of_a_cell() -> None:
    memory = UnifiedMemory(slots=2, holders=12, num_cells=1030, can_share=True, most_parked=100_000)
    for token in range(1, 7):
        keys = [0] * 1000 + [token] * 5
        found = memory.find(keys, len(keys))
        memory.enter(0, keys, found)
        memory.grow(0, len(keys) - found.length)
        memory.leave(0)
    memory.make_room(30)
    assert memory.num_free == 30, "what each has alone is parked"
    memory.take_edits()
    memory.allowance.renew(100)
    memory.allowance.take(100)
    assert memory.make_room(32, num_urgent=32) >= 32
    parked = [edit for edit in memory.take_edits() if isinstance(edit, Offload)]
    assert len(parked) <= 2
    assert memory.find([0] * 900, 900).length == 900, "one of them still has it"
    memory.check_integrity()


def test_some_room_is_made_before_each_step() -> None:
    memory = full(1000)
    memory.allowance.renew(0)
    assert memory.make_room(400, num_urgent=0) == LEAST_IN_PIECE


def test_giving_up_the_end_of_a_prefix_copies_nothing_and_has_no_limit() -> None:
    memory = full(1000, most_parked=0)
    memory.allowance.renew(0)
    assert memory.make_room(700, num_urgent=0) >= 700
    edits = memory.take_edits()
    assert len(edits) == -(-700 // MOST_IN_PIECE)
    assert all(isinstance(edit, Clear) for edit in edits)


def test_a_prefix_comes_back_into_full_cells_piece_by_piece() -> None:
    memory = full(600, 600)
    memory.make_room(600)
    wanted = memory.find([0] * 600, 599)
    assert memory.num_parked == 600
    memory.take_edits()
    memory.make_room(0)
    taken = memory.find([2] * 600, 599)
    memory.enter(0, [2] * 600, taken)
    memory.grow(0, 600)  # a running sequence has what was free
    num_steps = 0
    is_back = False
    while not is_back:
        memory.allowance.renew(200)
        is_back = memory.fetch(wanted)
        parked = sum(edit.count for edit in memory.take_edits() if isinstance(edit, Offload))
        assert parked <= 200
        num_steps += 1
        assert num_steps < 20
        memory.check_integrity()
    assert num_steps >= 600 / 200
    assert memory.num_free >= 0
