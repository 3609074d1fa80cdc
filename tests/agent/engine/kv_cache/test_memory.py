"""Who holds what in the cache, and what is done to the cells."""

import pytest

from arriero.agent.engine.kv_cache.memory import Memory
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.step import Clear, Copy, Discard, Load, Park, Restore


def make(
    *,
    num_cells: int = 100,
    holders: int = 4,
    can_share: bool = True,
    most_parked: int = 1000,
    is_compact: bool = False,
) -> Memory:
    return Memory(
        slots=2,
        holders=holders,
        num_cells=num_cells,
        can_share=can_share,
        most_parked=most_parked,
        is_compact=is_compact,
    )


def run(memory: Memory, slot: int, *tokens: int) -> int:
    """Let a sequence of `tokens` be computed in `slot`; how many of them it shared."""
    history = list(tokens)
    found = memory.find(history, len(history) - 1)
    memory.enter(slot, history, found)
    memory.grow(slot, len(history) - found.length)
    memory.check_integrity()
    return found.length


def test_an_ended_sequence_is_kept_beside_the_slots() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    memory.check_integrity()
    assert memory.take_edits() == (Copy(0, 3, 3), Clear(0))
    assert (memory.num_used, memory.num_kept, memory.num_available) == (3, 3, 100)
    assert run(memory, 0, 1, 2, 3, 4) == 3
    assert memory.take_edits() == (Copy(3, 0, 3),)
    assert (memory.num_used, memory.num_kept) == (4, 0)


def test_what_a_longer_one_holds_is_kept_once() -> None:
    memory = make(holders=8)
    for tokens in ((1, 2, 3), (1, 2, 3, 4), (1, 2)):
        run(memory, 0, *tokens)
        memory.leave(0)
        memory.check_integrity()
    assert memory.num_kept == 4


def test_the_one_not_used_for_the_longest_time_goes_first() -> None:
    memory = make()
    for token in (1, 2):
        run(memory, 0, *[token] * 5)
        memory.leave(0)
    assert run(memory, 0, 1, 1, 1, 9) == 3
    memory.leave(0)
    assert run(memory, 0, 2, 2, 2, 9) == 0
    assert run(memory, 1, 1, 1, 1, 1, 1, 8) == 5


def test_room_is_made_by_parking() -> None:
    memory = make(num_cells=10, most_parked=6)
    for token in (1, 2):
        run(memory, 0, *[token] * 4)
        memory.leave(0)
    memory.take_edits()
    assert (memory.num_kept, memory.num_available) == (8, 10)
    memory.make_room(5)
    assert memory.take_edits() == (Park(3),)
    assert (memory.num_kept, memory.num_parked) == (4, 4)
    memory.make_room(10)
    assert memory.take_edits() == (Clear(3), Park(2)), "the first had to go for the second"
    assert (memory.num_kept, memory.num_parked) == (0, 4)
    memory.check_integrity()


def test_where_nothing_can_be_parked_prefixes_are_dropped() -> None:
    memory = make(num_cells=10, most_parked=0)
    for token in (1, 2):
        run(memory, 0, *[token] * 4)
        memory.leave(0)
    memory.take_edits()
    assert memory.num_kept == 8, "as long as there is room"
    memory.make_room(5)
    assert memory.take_edits() == (Clear(3),)
    assert memory.num_kept == 4
    assert memory.empty_cells()
    assert not memory.empty_cells()
    memory.check_integrity()


def test_what_is_parked_comes_back_whole() -> None:
    memory = make(num_cells=10, is_compact=True)
    run(memory, 0, 1, 2, 3, 4, 5)
    memory.leave(0)
    memory.take_edits()
    run(memory, 1, 8, 8, 8, 8)
    assert memory.take_edits() == (Park(3),), "somebody else began"
    found = memory.find([1, 2, 3, 9], 3)
    assert found == Found(3, 3)
    assert memory.num_needed(found, 4) == 5
    memory.leave(1)
    memory.take_edits()
    assert run(memory, 0, 1, 2, 3, 9) == 3
    assert memory.take_edits() == (Park(2), Restore(3, 0, 3))
    assert (memory.num_used, memory.num_parked) == (4, 9)


def test_who_begins_with_it_finds_it_in_the_cells() -> None:
    memory = make(is_compact=True)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    memory.take_edits()
    assert run(memory, 0, 1, 2, 3, 4) == 3
    assert memory.take_edits() == (Copy(3, 0, 3),)


def test_what_shares_most_of_its_cells_is_not_moved_for_the_few_that_are_its_own() -> None:
    memory = make(holders=8, is_compact=True)
    run(memory, 0, 1, 2, 3, 4, 5, 6)
    run(memory, 1, 1, 2, 3, 4, 8)
    memory.leave(0)
    memory.leave(1)
    memory.take_edits()
    run(memory, 0, 9)
    assert (memory.take_edits(), memory.num_kept) == ((), 7)
    run(memory, 1, 1, 2, 7, 7)
    memory.leave(1)
    run(memory, 1, 8)
    assert (memory.num_parked, memory.num_kept) == (4, 7), "half of it is its own"


def test_only_so_much_is_parked_at_once() -> None:
    memory = make(num_cells=9000, holders=9, most_parked=9000, is_compact=True)
    for slot, token in ((0, 1), (1, 2)):
        run(memory, slot, *[token] * 2000)
    for slot in (0, 1):
        memory.leave(slot)
    run(memory, 0, 4)
    assert (memory.num_parked, memory.num_kept) == (2000, 2000)
    run(memory, 1, 5)
    assert (memory.num_parked, memory.num_kept) == (4000, 0)


def test_while_one_comes_back_it_is_not_dropped_for_another() -> None:
    memory = make(num_cells=10, most_parked=6, is_compact=True)
    run(memory, 0, 1, 1, 1, 1, 1)
    memory.leave(0)
    run(memory, 0, *[2] * 6)
    memory.leave(0)
    memory.take_edits()
    assert memory.num_parked == 5
    assert run(memory, 0, 1, 1, 1, 1, 1, 7) == 5
    assert memory.take_edits() == (Clear(2), Restore(3, 0, 5))


def test_what_is_lost_is_found_no_more() -> None:
    memory = make(is_compact=True)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    run(memory, 1, 9)
    assert memory.num_parked == 3
    memory.lose(3)
    memory.lose(3)
    assert memory.find([1, 2, 3, 4], 3) == Found()
    memory.check_integrity()


def test_only_so_much_is_shared_as_is_allowed() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4], Found(), most_shared=2)
    memory.grow(0, 4)
    assert memory.find([1, 2, 3, 4, 5], 4) == Found(2, 0)
    memory.leave(0)
    assert memory.num_kept == 2


def test_tokens_that_were_generated_are_shared_too() -> None:
    memory = make()
    history = [1, 2]
    memory.enter(0, history, Found())
    memory.grow(0, 2)
    history += [7, 8]
    memory.grow(0, 1)
    assert memory.find([1, 2, 7, 8, 9], 4) == Found(3, 0)


def test_a_model_that_cannot_share_keeps_nothing() -> None:
    memory = make(can_share=False)
    run(memory, 0, 1, 2, 3)
    assert run(memory, 1, 1, 2, 3) == 0
    memory.leave(0)
    assert memory.take_edits() == (Clear(0),)
    assert memory.num_used == 3


def test_without_numbers_beyond_the_slots_nothing_is_kept() -> None:
    memory = make(holders=2)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    assert memory.num_used == 0


def test_belief_in_fewer_cells() -> None:
    memory = make(num_cells=100)
    run(memory, 0, *range(10))
    memory.lower_limit(5)
    assert memory.num_available == 5
    memory.raise_limit(8)
    assert memory.num_available == 8
    memory.trust()
    assert memory.num_available == 90


def test_unaccounted_cells_are_swept() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    memory.sweep(0)
    assert memory.take_edits() == (Clear(0, 3),)


def test_what_moves_is_shared_with_nobody() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4, 5, 6], Found(), most_shared=2)
    memory.grow(0, 6)
    memory.discard(0, 2, 3)
    assert memory.take_edits() == (Discard(0, 2, 3),)
    assert (memory.length(0), memory.num_used) == (3, 3)
    memory.truncate(0, 2)
    assert memory.take_edits() == (Clear(0, 2),)
    memory.check_integrity()


def test_a_stored_prompt_needs_room_for_all_of_it() -> None:
    memory = make(num_cells=10)
    run(memory, 0, *[1] * 4)
    memory.leave(0)
    memory.take_edits()
    stored = StoredPrompt((2,) * 8, b"state")
    memory.load(0, [2, 2, 2, 3], stored, 3)
    assert memory.take_edits() == (Park(3), Load(0, stored, 3))
    assert memory.num_used == 3
    memory.check_integrity()


def test_a_slot_enters_once() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    with pytest.raises(ValueError, match="holder 0"):
        run(memory, 0, 1, 2, 3)
