"""Blocks that checkpoints in host memory share, and which checkpoints go."""

import pytest

from arriero.agent.engine.kv_cache.parked_blocks import MOST, ParkedBlocks


def make(most_bytes: int = 100) -> ParkedBlocks:
    """Two bytes a position, and ten a state."""
    return ParkedBlocks(first=50, block=4, most_bytes=most_bytes, cell_bytes=2, state_bytes=10)


def park(parked: ParkedBlocks, *keys: int, worth: float = 1.0) -> int:
    blocks: list[int] = []
    for part in parked.cut(keys):
        blocks.append(parked.take(blocks, part))
    name = parked.add(blocks, worth)
    parked.check_integrity(())
    return name


def test_what_begins_alike_has_the_same_blocks() -> None:
    parked = make()
    first = park(parked, 1, 2, 3, 4, 5, 6)
    assert (parked.length(first), parked.num_bytes) == (6, 22)
    second = park(parked, 1, 2, 3, 4, 5, 7)
    assert (parked.num_positions, parked.num_bytes) == (4 + 2 + 2, 36)
    (id, *_), _ = parked.blocks(first)
    assert next(parked.blocks(second)) == (id, 0, 4)
    assert parked.known([], (1, 2, 3, 4)) == id
    assert parked.known([id], (5, 6, 8)) is None
    assert len(parked.remove(first)) == 1, "the block of both stays"
    parked.check_integrity(())
    assert len(parked.remove(second)) == 2
    assert parked.num_bytes == 0


def test_a_position_whose_cells_are_there_is_not_counted_as_parked() -> None:
    parked = make()
    first = park(parked, 1, 2, 3, 4, 5, 6)
    second = park(parked, 1, 2, 3, 4, 5, 7)
    parked.in_cells(first, 6)
    assert parked.num_positions == 2
    parked.in_cells(second, 4)
    parked.in_cells(first, 0)
    assert parked.num_positions == 2 + 2
    assert parked.num_bytes == 36, "the bytes are there all the same"
    parked.remove(second)
    assert parked.num_positions == 6
    parked.check_integrity(())


def test_blocks_of_what_is_being_parked_stay() -> None:
    parked = make()
    first = park(parked, 1, 2, 3, 4, 5)
    taken = [parked.take([], (1, 2, 3, 4))]
    parked.remove(first)
    parked.check_integrity([taken])
    assert parked.known([], (1, 2, 3, 4)) == taken[0]
    assert parked.release(taken) == taken
    parked.check_integrity(())


def test_what_is_worth_least_is_in_the_way_and_nothing_that_is_worth_as_much() -> None:
    parked = make(most_bytes=60)
    low = park(parked, 1, 2, 3, 4, 5, worth=1)
    high = park(parked, 1, 2, 3, 4, 6, worth=2)
    assert parked.num_bytes == 32
    assert parked.in_the_way(9, 3) == []
    assert parked.in_the_way(10, 3) == [low]
    assert parked.in_the_way(16, 3) == [low, high], "with the last one goes what they share"
    assert parked.in_the_way(16, 2) is None
    assert parked.in_the_way(16, 3, sparing={low}) is None
    assert parked.in_the_way(90, 3) is None, "not even if all went"
    parked.use(low, 5)
    assert parked.in_the_way(10, 3) == [high]
    assert parked.relatives(low) == [low, high]


def test_there_may_be_more_for_a_moment_when_it_comes_from_outside() -> None:
    parked = make(most_bytes=0)
    name = park(parked, 1, 2)
    assert parked.surplus((name,)) is None
    assert parked.surplus(()) == name


def test_small_ones_are_bounded_too() -> None:
    parked = make(most_bytes=10**9)
    names = [park(parked, number, worth=number) for number in range(10)]
    for number in range(10, MOST):
        parked.add([parked.take([], (number,))], number)
    assert parked.in_the_way(1, 5000) == names[:1]


def test_a_broken_invariant_is_found() -> None:
    parked = make()
    park(parked, 1, 2, 3, 4, 5)
    parked.num_bytes += 1
    with pytest.raises(RuntimeError, match="bytes"):
        parked.check_integrity(())
