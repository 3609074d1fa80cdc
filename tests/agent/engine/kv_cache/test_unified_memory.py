"""Who holds what in the cache, what is done to the cells, and who has to leave them."""

from dataclasses import replace

import pytest

from arriero.agent.engine.capacity import BLOCK
from arriero.agent.engine.kv_cache.allowance import LEAST_IN_PIECE, MOST_IN_PIECE
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.step import Clear, Copy, Discard, Edit, Free, Offload, Put, Restore
from tests.agent.engine.fake_engine import stored_prompt


def make(
    *,
    num_cells: int = 100,
    holders: int = 4,
    can_share: bool = True,
    most_parked: int = 1000,
    is_compact: bool = False,
) -> UnifiedMemory:
    return UnifiedMemory(
        slots=2,
        holders=holders,
        num_cells=num_cells,
        policy=LeastRecentlyUsed(),
        can_share=can_share,
        most_parked=most_parked,
        is_compact=is_compact,
    )


def run(memory: UnifiedMemory, slot: int, *tokens: int) -> int:
    """Let a sequence of `tokens` be computed in `slot`; how many of them it shared."""
    history = list(tokens)
    found = memory.find(history, len(history) - 1)
    assert memory.fetch(found)
    memory.enter(slot, history, found)
    memory.grow(slot, len(history) - found.length)
    memory.check_integrity()
    return found.length


def kept(memory: UnifiedMemory, *tokens: int) -> int:
    """The number of the prefix that begins with `tokens`."""
    source = memory.find(tokens, len(tokens)).source
    assert source is not None and source >= 2
    return source


def park(holder: int, start: int, count: int, *, block: int) -> tuple[Edit, ...]:
    """What moves cells to host memory."""
    return Offload(holder, start, count, block), Clear(holder, start)


def read(memory: UnifiedMemory, keys: list[int], start: int) -> list[tuple[int, int]]:
    """Where the parts of what is handed out begin in the cells or in a block; their lengths."""
    parts = memory.hand_out(keys, HandOut(start)) or []
    return [(part.edits[0].start, part.length) for part in parts]  # type: ignore[union-attr]


def test_an_ended_sequence_is_kept_beside_the_slots() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    memory.check_integrity()
    first = kept(memory, 1, 2, 3)
    assert memory.take_edits() == (Copy(0, first, 3), Clear(0))
    assert (memory.room.num_used, memory.room.num_kept, memory.room.num_available) == (3, 3, 100)
    assert run(memory, 0, 1, 2, 3, 4) == 3
    assert memory.take_edits() == (Copy(first, 0, 3),)
    assert (memory.room.num_used, memory.room.num_kept) == (4, 0)


def test_what_a_longer_one_holds_is_kept_once() -> None:
    memory = make(holders=8)
    for tokens in ((1, 2, 3), (1, 2, 3, 4), (1, 2)):
        run(memory, 0, *tokens)
        memory.leave(0)
        memory.check_integrity()
    assert memory.room.num_kept == 4


def test_the_one_not_used_for_the_longest_time_goes_first() -> None:
    memory = make()
    for token in (1, 2):
        run(memory, 0, *[token] * 5)
        memory.leave(0)
    assert run(memory, 0, 1, 1, 1, 9) == 3
    memory.leave(0)
    assert run(memory, 0, 2, 2, 2, 9) == 0
    assert run(memory, 1, 1, 1, 1, 1, 1, 8) == 5


def test_room_is_made_by_parking_what_was_not_used_for_the_longest_time() -> None:
    memory = make(num_cells=400, most_parked=250)
    for token in (1, 2):
        run(memory, 0, *[token] * 150)
        memory.leave(0)
    first, second = kept(memory, 1), kept(memory, 2)
    memory.take_edits()
    assert (memory.room.num_kept, memory.room.num_available) == (300, 400)
    memory.make_room(101)
    assert memory.take_edits() == park(first, BLOCK, 150 - BLOCK, block=1)
    assert (memory.room.num_kept, memory.counts.parked) == (150 + BLOCK, 150 - BLOCK)
    memory.make_room(250)
    assert memory.take_edits() == park(first, 0, BLOCK, block=0)
    memory.make_room(400)
    first_gone = (Free((0, 1)), Clear(first))
    assert memory.take_edits() == (
        *park(second, BLOCK, 150 - BLOCK, block=4),
        *first_gone,
        *park(second, 0, BLOCK, block=3),
    ), "there is no room for both"
    assert (memory.room.num_kept, memory.counts.parked) == (0, 150)
    memory.check_integrity()


def test_where_nothing_can_be_parked_prefixes_lose_their_ends() -> None:
    memory = make(num_cells=200, most_parked=0)
    for token in (1, 2):
        run(memory, 0, *[token] * 100)
        memory.leave(0)
    first = kept(memory, 1)
    memory.take_edits()
    assert memory.room.num_kept == 200, "as long as there is room"
    memory.make_room(10)
    assert memory.take_edits() == (Clear(first, 100 - LEAST_IN_PIECE),)
    assert memory.find([1] * 100, 99) == Found(100 - LEAST_IN_PIECE, first)
    memory.make_room(memory.room.num_available)
    assert memory.room.num_used == 0
    memory.check_integrity()


def test_what_would_not_fit_as_a_whole_loses_its_end_and_is_parked_then() -> None:
    memory = make(num_cells=200, most_parked=90)
    run(memory, 0, *[1] * 100)
    memory.leave(0)
    first = kept(memory, 1)
    memory.take_edits()
    memory.make_room(110)
    assert memory.take_edits() == (Clear(first, 100 - LEAST_IN_PIECE),)
    memory.make_room(200)
    assert memory.take_edits() == park(first, 0, 100 - LEAST_IN_PIECE, block=0)
    memory.check_integrity()


def test_what_is_parked_comes_back_before_somebody_begins_with_it() -> None:
    memory = make(num_cells=10, is_compact=True)
    run(memory, 0, 1, 2, 3, 4, 5)
    memory.leave(0)
    first = kept(memory, 1, 2, 3, 4, 5)
    memory.take_edits()
    run(memory, 1, 8, 8, 8, 8)
    assert memory.take_edits() == park(first, 0, 5, block=0), "somebody else began"
    found = memory.find([1, 2, 3, 9], 3)
    assert found == Found(3, first)
    assert memory.num_needed(found, 4) == 5, "the piece comes back whole"
    memory.leave(1)
    memory.take_edits()
    assert run(memory, 0, 1, 2, 3, 9) == 3
    restored, *_, shared = memory.take_edits()
    assert (restored, shared) == (Restore(first, 0, 5, 0), Copy(first, 0, 3))
    assert memory.counts.parked == 4, "what has come back is in the cells"
    memory.check_integrity()


def test_who_begins_with_it_finds_it_in_the_cells() -> None:
    memory = make(is_compact=True)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    first = kept(memory, 1, 2, 3)
    memory.take_edits()
    assert run(memory, 0, 1, 2, 3, 4) == 3
    assert memory.take_edits() == (Copy(first, 0, 3),)


def test_only_cells_that_nobody_shares_are_moved_when_others_begin() -> None:
    memory = make(holders=8, is_compact=True)
    run(memory, 0, 1, 2, 3, 4, 5, 6)
    run(memory, 1, 1, 2, 3, 4, 8)
    memory.leave(0)
    memory.leave(1)
    run(memory, 0, 9)
    assert (memory.counts.parked, memory.room.num_kept) == (3, 4)
    assert memory.find([1, 2, 3, 4, 5, 6, 7], 6).length == 6, "in part here, in part parked"
    memory.check_integrity()


def test_a_first_block_moves_whose_first_token_all_prompts_have() -> None:
    memory = make(num_cells=1000, most_parked=1000, is_compact=True)
    run(memory, 0, 1, *[2] * BLOCK)
    run(memory, 1, 1, *[3] * BLOCK)
    memory.leave(0)
    memory.leave(1)
    run(memory, 0, 1, 4)
    run(memory, 1, 1, 5)
    assert memory.room.num_used == 3, "the first token, and what runs"
    assert memory.find([1, *[2] * BLOCK, 9], BLOCK + 1).length == BLOCK + 1
    memory.check_integrity()


def test_cells_that_only_kept_prefixes_share_can_be_had_too() -> None:
    memory = make(num_cells=10, holders=8)
    run(memory, 0, 1, 2, 3, 4, 5, 6)
    run(memory, 1, 1, 2, 3, 4, 8)
    memory.leave(0)
    memory.leave(1)
    memory.make_room(10)
    assert memory.room.num_used == 0
    assert memory.find([1, 2, 3, 4, 8, 9], 5).length == 5
    memory.check_integrity()


def test_only_so_much_is_parked_when_somebody_begins() -> None:
    memory = make(num_cells=9000, holders=9, most_parked=9000, is_compact=True)
    for slot, token in ((0, 1), (1, 2)):
        run(memory, slot, *[token] * 2000)
    for slot in (0, 1):
        memory.leave(slot)
    run(memory, 0, 4)
    assert (memory.counts.parked, memory.room.num_kept) == (2000, 2000)
    run(memory, 1, 5)
    assert (memory.counts.parked, memory.room.num_kept) == (4000, 0)


def test_no_more_cells_move_than_are_allowed() -> None:
    memory = make(num_cells=4000, most_parked=4000, is_compact=True)
    run(memory, 0, *[1] * 1500)
    memory.leave(0)
    memory.allowance.renew(700)
    run(memory, 1, 5)
    assert memory.allowance.num_moved == memory.counts.parked == 700 - (700 - 1500) % BLOCK
    memory.leave(1)
    for allowed in (300, 100, 100, 100):
        memory.allowance.renew(allowed)
        present = memory.fetch(memory.find([1] * 1500, 1499))
        assert memory.allowance.num_moved <= max(allowed, MOST_IN_PIECE)
    assert present == memory.find([1] * 1500, 1499)
    memory.check_integrity()


def test_while_one_comes_back_it_is_not_dropped_for_another() -> None:
    memory = make(num_cells=10, most_parked=6, is_compact=True)
    run(memory, 0, 1, 1, 1, 1, 1)
    memory.leave(0)
    first = kept(memory, *[1] * 5)
    run(memory, 0, *[2] * 6)
    memory.leave(0)
    assert memory.counts.parked == 5
    memory.take_edits()
    assert run(memory, 0, 1, 1, 1, 1, 1, 7) == 5
    edits = memory.take_edits()
    assert Restore(first, 0, 5, 0) in edits
    assert edits[-1] == Copy(first, 0, 5)
    memory.check_integrity()


def test_what_was_read_from_disk_is_a_kept_prefix_that_is_parked() -> None:
    memory = make()
    stored = stored_prompt(*range(1, 8), piece=3)
    holder = memory.adopt(stored)
    assert holder is not None
    puts = [edit for edit in memory.take_edits() if isinstance(edit, Put)]
    assert [one.state for one in puts] == [piece.state for piece in stored.pieces]
    assert memory.counts.parked == 7
    assert run(memory, 0, 1, 2, 3, 4, 9) == 4
    first, second, copy = memory.take_edits()
    assert first == Restore(holder, 0, 3, puts[0].block)
    assert second == Restore(holder, 3, 3, puts[1].block)
    assert copy == Copy(holder, 0, 4)
    assert memory.counts.parked == 1


def test_what_was_read_from_disk_goes_before_what_is_parked() -> None:
    memory = make(most_parked=5, is_compact=True)
    run(memory, 0, 8, 8, 8)
    memory.leave(0)
    run(memory, 0, 9)
    assert memory.counts.parked == 3
    memory.adopt(stored_prompt(*range(1, 8)))
    assert memory.counts.parked == 7, "more than may be parked, but no more than itself"
    assert memory.find([8, 8, 8, 8], 3) == Found()
    memory.check_integrity()


def test_what_is_lost_is_found_no_more() -> None:
    memory = make(is_compact=True)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    run(memory, 1, 9)
    first = kept(memory, 1, 2, 3)
    assert memory.counts.parked == 3
    memory.lose(first)
    memory.lose(first)
    assert memory.find([1, 2, 3, 4], 3) == Found()
    memory.check_integrity()


def test_only_so_much_is_shared_as_is_allowed() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4], Found(), most_shared=2)
    memory.grow(0, 4)
    assert memory.find([1, 2, 3, 4, 5], 4) == Found(2, 0)
    memory.leave(0)
    assert memory.room.num_kept == 2


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
    assert memory.room.num_used == 3


def test_what_cannot_be_shared_is_absent_when_it_begins_and_when_it_is_read() -> None:
    memory = make(can_share=False)
    memory.enter(0, [1, 2, 3], Found(), marks=((2, 7),))
    assert memory.marks.take_gone(2).keys == (7,)
    memory.grow(0, 1)
    assert memory.marks.take_gone(2).keys == ()
    memory.grow(0, 1)
    assert memory.marks.take_gone(2).keys == (7,)


def test_without_numbers_beyond_the_slots_nothing_is_kept() -> None:
    memory = make(holders=2)
    run(memory, 0, 1, 2, 3)
    memory.leave(0)
    assert memory.room.num_used == 0


def test_unaccounted_cells_are_swept() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    memory.discard(0, memory.room.length(0))
    assert memory.take_edits() == (Clear(0, 3),)


def test_what_moves_is_shared_with_nobody() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4, 5, 6], Found(), most_shared=2)
    memory.grow(0, 6)
    memory.discard(0, 2, 3)
    assert memory.take_edits() == (Discard(0, 2, 3),)
    assert (memory.room.length(0), memory.room.num_used) == (3, 3)
    memory.discard(0, 2)
    assert memory.take_edits() == (Clear(0, 2),)
    memory.check_integrity()


def test_a_slot_enters_once() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3)
    with pytest.raises(ValueError, match="holder 0"):
        run(memory, 0, 1, 2, 3)


def test_what_can_be_read_of_a_prefix_ends_where_a_piece_does() -> None:
    memory = make(num_cells=2000, most_parked=2000)
    history = list(range(1, 1501))
    run(memory, 0, *history)
    assert read(memory, history, 0) == [(0, 512), (512, 512), (1024, 476)]
    assert read(memory, history[:10], 4) == [(4, 6)]
    memory.leave(0)
    source = kept(memory, *history)
    memory.allowance.renew(MOST_IN_PIECE)
    memory.take_edits()
    memory.make_room(700, num_urgent=0)
    last, *_, parked = [edit for edit in memory.take_edits() if isinstance(edit, Offload)]
    assert (last.start + last.count, parked.count) == (1500, BLOCK)
    memory.allowance.renew(10_000)
    end = parked.start + BLOCK + 1
    assert read(memory, history[:end], parked.start - 9) == [
        (parked.start - 9, 9),
        (0, BLOCK),
        (0, 1),
    ]
    assert read(memory, history[: parked.start + 5], parked.start + 2) == [(2, 3)]
    assert memory.hand_out([*history, 7], HandOut(1500)) is None
    assert memory.hand_out([7, 7], HandOut()) is None
    assert kept(memory, *history) == source


def test_the_rest_of_a_prefix_goes_on_from_what_is_in_the_cells() -> None:
    memory = make(num_cells=30)
    run(memory, 0, 1, 2, 3, 4, 50)
    memory.leave(0)
    first = kept(memory, 1, 2, 3)
    memory.take_edits()
    whole_prompt = stored_prompt(*range(1, 9), piece=2)
    rest = replace(whole_prompt, pieces=whole_prompt.pieces[2:], start=4)
    holder = memory.adopt(rest, first)
    assert holder is not None
    copy, *puts = memory.take_edits()
    assert copy == Copy(first, holder, 4)
    assert [type(edit) for edit in puts] == [Put, Put]
    memory.check_integrity()
    assert (memory.room.num_used, memory.counts.parked) == (5, 4), "four cells belong to both"
    assert run(memory, 1, *range(1, 9), 99) == 8
    assert memory.room.num_used == 10


def test_what_a_prefix_goes_on_from_goes_when_it_has_nothing_of_its_own() -> None:
    memory = make(num_cells=30)
    run(memory, 0, *range(1, 5))
    memory.leave(0)
    first = kept(memory, 1, 2, 3)
    memory.take_edits()
    whole_prompt = stored_prompt(*range(1, 9), piece=2)
    rest = replace(whole_prompt, pieces=whole_prompt.pieces[2:], start=4)
    holder = memory.adopt(rest, first)
    copy, *puts, gone = memory.take_edits()
    assert (copy, gone) == (Copy(first, holder, 4), Clear(first))
    assert [type(edit) for edit in puts] == [Put, Put]
    memory.check_integrity()
    assert (memory.room.num_used, memory.counts.parked) == (4, 4)


def test_a_rest_without_its_beginning_is_not_adopted() -> None:
    memory = make()
    rest = replace(stored_prompt(5, 6), start=1)
    assert memory.adopt(rest) is None
    memory.check_integrity()


# ---- who has to leave the cells, how much at once, and where it goes


def full(*lengths: int, most_parked: int = 4000) -> UnifiedMemory:
    """A memory that kept prefixes of these lengths fill, none of them used by anybody."""
    memory = UnifiedMemory(
        slots=2,
        holders=8,
        num_cells=sum(lengths),
        policy=LeastRecentlyUsed(),
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
    assert num_parked == [1000 % BLOCK, BLOCK, BLOCK]
    memory.allowance.renew(150)
    memory.make_room(400, num_urgent=1)
    assert memory.room.num_free == memory.counts.parked == 1000 % BLOCK + 3 * BLOCK


def test_what_was_copied_for_others_counts() -> None:
    memory = full(1000)
    memory.allowance.renew(150)
    memory.allowance.take(40)
    assert memory.make_room(400, num_urgent=0) == 1000 % BLOCK
    assert memory.make_room(400, num_urgent=0) == 1000 % BLOCK, "no more before this step"


@pytest.mark.parametrize("num_taken", [0, 150])
def test_what_is_urgent_is_parked_whatever_was_copied(num_taken: int) -> None:
    memory = full(1000)
    memory.allowance.renew(150)
    memory.allowance.take(num_taken)
    assert memory.make_room(700, num_urgent=7) == 1000 % BLOCK


def test_what_prefixes_share_is_not_copied_in_tiny_pieces_for_the_sake_of_a_cell() -> None:
    memory = UnifiedMemory(
        slots=2, holders=12, num_cells=1030, policy=LeastRecentlyUsed(), most_parked=100_000
    )
    for token in range(1, 7):
        keys = [0] * 1000 + [token] * 5
        found = memory.find(keys, len(keys))
        memory.enter(0, keys, found)
        memory.grow(0, len(keys) - found.length)
        memory.leave(0)
    memory.make_room(30)
    assert memory.room.num_free == 30, "what each has alone is parked"
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
    assert memory.make_room(400, num_urgent=0) == 1000 % BLOCK


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
    assert memory.counts.parked == 600
    memory.take_edits()
    memory.make_room(0)
    taken = memory.find([2] * 600, 599)
    memory.enter(0, [2] * 600, taken)
    memory.grow(0, 600)  # a running sequence has what was free
    num_steps = 0
    is_back = False
    while not is_back:
        memory.allowance.renew(200)
        is_back = memory.fetch(wanted) is not None
        parked = sum(edit.count for edit in memory.take_edits() if isinstance(edit, Offload))
        assert parked <= 200
        num_steps += 1
        assert num_steps < 20
        memory.check_integrity()
    assert num_steps >= 600 / 200
    assert memory.room.num_free >= 0


# ---- blocks that are parked


def offloaded(memory: UnifiedMemory) -> list[tuple[int, int]]:
    """Where the blocks begin that were copied to host memory, and their cells."""
    edits = memory.take_edits()
    return [(one.start, one.count) for one in edits if isinstance(one, Offload)]


def test_what_has_come_back_is_not_copied_again() -> None:
    memory = full(300)
    memory.make_room(300)
    assert offloaded(memory) == [(256, 44), (128, 128), (0, 128)]
    keys = [0] * 300
    assert memory.fetch(memory.find(keys, 300)) is not None
    assert (memory.room.num_used, memory.counts.parked) == (300, 0)
    memory.allowance.renew(0)
    assert memory.make_room(300, num_urgent=0) == 300, "that costs nothing"
    assert (memory.room.num_used, memory.counts.parked) == (0, 300)
    assert offloaded(memory) == []
    memory.check_integrity()


def test_of_a_further_turn_only_what_is_new_is_copied() -> None:
    memory = full(300, 100, most_parked=500)
    memory.make_room(400)
    memory.take_edits()
    keys = [0] * 300
    found = memory.fetch(memory.find(keys, 300))
    assert found is not None
    memory.enter(0, keys + [7] * 100, found)
    memory.grow(0, 100)
    memory.leave(0)
    memory.check_integrity()
    memory.make_room(400)
    assert memory.room.num_used == 0
    assert offloaded(memory) == [(384, 16), (256, 128)]
    assert memory.counts.parked == 400 + 100
    memory.check_integrity()


def test_what_prefixes_begin_with_alike_is_in_host_memory_once() -> None:
    memory = UnifiedMemory(
        slots=2, holders=8, num_cells=700, policy=LeastRecentlyUsed(), most_parked=4000
    )
    for token in (1, 2):
        keys = [0] * 256 + [token] * 100
        memory.enter(0, keys, memory.find(keys, 356))
        memory.grow(0, 356 - memory.room.length(0))
        memory.leave(0)
    memory.make_room(700)
    assert memory.counts.parked == 256 + 2 * 100
    memory.check_integrity()


def test_copies_of_what_is_in_the_cells_go_first() -> None:
    memory = full(300, 300, most_parked=400)
    memory.make_room(300)
    assert memory.fetch(memory.find([0] * 300, 300)) is not None
    memory.make_room(300)
    for token in (0, 1):
        assert memory.find([token] * 300, 300).length == 300, "nothing is lost"
    assert memory.room.num_used == 300 <= memory.counts.parked <= 400
    memory.check_integrity()
