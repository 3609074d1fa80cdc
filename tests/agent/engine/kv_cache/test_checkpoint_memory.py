"""Where checkpoints are taken, who begins with which, and which go when there is no room."""

import pytest

from arriero.agent.engine.kv_cache.checkpoint_memory import CheckpointMemory
from arriero.agent.engine.kv_cache.greedy_dual import GreedyDual
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.step import (
    Clear,
    Copy,
    Edit,
    Offload,
    OffloadState,
    Put,
    ReadOut,
    Restore,
    RestoreState,
)
from tests.agent.engine.fake_engine import stored_checkpoints, stored_prompt


def make(
    *,
    num_cells: int = 100,
    holders: int = 6,
    gap: int = 1,
    most_parked: int = 0,
    window: int = 0,
    copies_state: bool = False,
) -> CheckpointMemory:
    """Blocks of four cells of one byte each, and states of two."""
    return CheckpointMemory(
        slots=2,
        holders=holders,
        num_cells=num_cells,
        policy=GreedyDual(),
        gap=gap,
        most_parked=most_parked,
        block=4,
        cell_bytes=1,
        state_bytes=2,
        window=window,
        copies_state=copies_state,
    )


def begin(memory: CheckpointMemory, slot: int, *tokens: int, borders: tuple[int, ...] = ()) -> int:
    """A sequence of `tokens` begins in `slot`; how many of them it shared."""
    history = list(tokens)
    found = memory.find(history, len(history) - 1)
    memory.enter(slot, history, found, borders=borders)
    memory.check_integrity()
    return found.length


def read(memory: CheckpointMemory, slot: int, until: int) -> list[int]:
    """Compute all up to there; where the parts ended."""
    ends = []
    while (length := memory.room.length(slot)) < until:
        ends.append(min(memory.next_border(slot) or until, until))
        memory.grow(slot, ends[-1] - length)
        memory.check_integrity()
    return ends


def run(memory: CheckpointMemory, slot: int, *tokens: int, borders: tuple[int, ...] = ()) -> int:
    """The sequence is computed, and over; how many tokens it shared."""
    shared = begin(memory, slot, *tokens, borders=borders)
    read(memory, slot, len(tokens))
    memory.leave(slot)
    memory.check_integrity()
    return shared


def test_the_end_of_an_answer_is_a_checkpoint_and_the_last_token_but_one_of_a_prompt() -> None:
    memory = make(gap=3)
    begin(memory, 0, 1, 2, 3, 4, 5)
    assert read(memory, 0, 5) == [4, 5]
    memory.grow(0, 0)
    memory.leave(0)
    first = memory.find([1, 2, 3, 4, 5, 6], 5).source
    assert memory.find([1, 2, 3, 4, 5, 6], 5) == Found(4, first), "an answer of a token adds little"
    assert memory.take_edits() == (Copy(0, first or -1, 4), Clear(0))
    assert begin(memory, 0, 1, 2, 3, 4, 5) == 4
    assert memory.take_edits() == (Copy(first or -1, 0, 4),)


def test_an_answer_is_gone_on_from() -> None:
    memory = make()
    history = [1, 2, 3, 4]
    memory.enter(0, history, Found())
    read(memory, 0, 4)
    history += [5, 6, 7, 8]
    memory.grow(0, 4)
    memory.leave(0)
    assert run(memory, 0, *range(1, 12)) == 8


def test_a_prefix_ends_at_a_checkpoint_and_nowhere_else() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    assert memory.find([1, 2, 3, 4, 9], 4) == Found()
    assert memory.find([1, 2, 3, 4, 5, 6, 7, 8, 9], 8).length == 8
    assert memory.find([1, 2, 3, 4, 5, 6, 7, 8, 9], 7).length == 7, "of two the one that fits"


def test_where_a_prompt_parts_from_a_known_one_the_third_one_begins() -> None:
    memory = make(holders=10)
    run(memory, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    begin(memory, 0, 1, 2, 3, 4, 15, 16, 17, 18)
    assert read(memory, 0, 8) == [4, 7, 8]
    assert begin(memory, 1, 1, 2, 3, 4, 25, 26, 27, 28) == 4


def test_messages_and_long_prompts_have_checkpoints_but_not_close_to_each_other() -> None:
    memory = make(gap=3, num_cells=9000)
    begin(memory, 0, *range(1, 13), borders=(2, 4, 7, 9))
    assert read(memory, 0, 12) == [4, 9, 12], "the last ones count most"
    memory.leave(0, keeps=False)
    begin(memory, 0, *range(1, 5001))
    assert read(memory, 0, 5000) == [2048, 4096, 4999, 5000]


def test_the_last_messages_count_most() -> None:
    memory = make(gap=3)
    begin(memory, 0, *range(1, 13), borders=(4, 6, 8))
    assert read(memory, 0, 12) == [4, 8, 11, 12]
    assert memory.next_border(0) is None


def test_nothing_is_cut_within_media() -> None:
    memory = make(gap=1)
    prompt = Prompt((1, 2), Media(b"picture", 4), (3, 4))
    memory.enter(0, list(prompt.keys), Found(), borders=(4,))
    assert read(memory, 0, 8) == [2, 7, 8]
    memory.leave(0, keeps=False)
    empty(memory)
    memory.enter(0, list(prompt.keys), Found(), borders=(2,))
    memory.grow(0, 2)
    memory.grow(0, 2)
    memory.leave(0)
    assert memory.find(prompt.keys, 7).length == 2, "the checkpoint before the picture"


def test_others_wait_for_a_part_of_a_prompt_that_is_being_read() -> None:
    memory = make()
    begin(memory, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    memory.grow(0, 2)
    found = memory.find([1, 2, 3, 4, 5, 9], 5)
    assert (found.promised, found.promised_by) == (5, 0)
    assert (found.length, found.source) == (2, 0), "where the other one stands can be had at once"
    assert memory.fetch(Found(5, 0)) is memory.fetch(Found(5, 0)) is None
    assert memory.next_border(0) == 5
    memory.grow(0, 3)
    memory.grow(0, 1)
    found = memory.find([1, 2, 3, 4, 5, 9], 5)
    assert found.length == 5 and found.source in range(2, 6) and found.promised_by is None


def test_a_running_sequence_is_shared_where_it_stands() -> None:
    memory = make()
    begin(memory, 0, 1, 2, 3, 4)
    memory.grow(0, 2)
    found = memory.find([1, 2, 9], 2)
    assert found == Found(2, 0)
    memory.enter(1, [1, 2, 9], found)
    memory.check_integrity()
    assert memory.take_edits() == (Copy(0, 1, 2),)
    memory.grow(0, 2)
    assert memory.find([1, 2, 9], 2).length == 2, "and the other one still stands there"


def test_who_may_shift_shares_its_head_alone() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4, 5, 6], Found(), most_shared=4)
    assert read(memory, 0, 6) == [3, 6]
    memory.discard(0, 0)
    memory.check_integrity()
    memory.leave(0)
    assert memory.find([1, 2, 3, 4, 5, 6], 6).length == 3


def test_whoever_is_preempted_goes_on_where_it_stood() -> None:
    memory = make()
    begin(memory, 0, 1, 2, 3, 4, 5, 6)
    memory.grow(0, 3)
    memory.leave(0)
    assert (memory.room.num_kept, memory.room.num_available) == (3, 100)
    assert begin(memory, 1, 1, 2, 3, 4, 5, 6) == 3


def test_checkpoints_go_for_cells_those_first_that_save_least() -> None:
    memory = make(num_cells=20, gap=4)
    run(memory, 0, *range(1, 11))
    run(memory, 0, *range(1, 11), 11, 12, 13, 14)
    run(memory, 0, 21, 22, 23, 24)
    assert memory.room.num_free == 20 - 13 - 4
    assert memory.make_room(4) >= 4
    memory.check_integrity()
    assert memory.find([*range(1, 15)], 14).length == 13, "four tokens of another are worth less"
    assert memory.make_room(20) == 20
    with pytest.raises(RuntimeError):
        memory.make_room(21)


def test_what_was_used_lately_outlives_what_was_not() -> None:
    memory = make(holders=4, gap=8)
    for family in (1, 2):
        run(memory, 0, *range(100 * family, 100 * family + 8))
    for family in (3, 4, 5):
        assert run(memory, 0, *range(100, 108), 1) == 8
        run(memory, 0, *range(100 * family, 100 * family + 8))
    assert memory.find([*range(200, 208)], 8) == Found()


def test_a_checkpoint_is_taken_once() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4)
    memory.take_edits()
    assert run(memory, 0, 1, 2, 3, 4, 5, 6) == 4
    num_used = memory.room.num_used
    assert run(memory, 0, 1, 2, 3, 4, 5, 6) == 5
    assert memory.room.num_used == num_used


def test_room_is_counted_with_what_only_checkpoints_have() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4)
    found = memory.find([1, 2, 3, 4, 5], 4)
    assert memory.num_needed(found, 5) == 5
    assert memory.num_needed(Found(), 5) == 5
    memory.enter(0, [1, 2, 3, 4, 5], found)
    assert memory.num_needed(memory.find([1, 2, 3, 4, 6], 4), 5) == 1, "the rest is in use"
    assert memory.fetch(found) == found, "it is there"


def test_what_could_not_be_copied_is_not_found_again() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4)
    assert begin(memory, 0, 1, 2, 3, 4, 5) == 4
    memory.lose(0)
    memory.leave(0, keeps=False)
    assert memory.find([1, 2, 3, 4, 5], 4).length == 3, "the one before it"
    begin(memory, 0, 6, 7, 8, 9)
    memory.grow(0, 2)
    assert begin(memory, 1, 6, 7, 9) == 2
    memory.lose(1)
    memory.leave(1, keeps=False)
    memory.check_integrity()
    assert memory.find([6, 7, 9], 2) == Found()
    memory.leave(0, keeps=False)


def empty(memory: CheckpointMemory) -> None:
    memory.make_room(memory.room.num_available)


def park_all(memory: CheckpointMemory) -> None:
    """All checkpoints leave the cells, once they are parked."""
    memory.make_room(memory.room.num_cells, num_urgent=0)
    memory.check_integrity()
    memory.take_edits()


def restore(memory: CheckpointMemory, keys: list[int]) -> tuple[int, list[Edit]]:
    """How many of `keys` came back, and what that took."""
    present = memory.fetch(memory.find(keys, len(keys)))
    memory.check_integrity()
    assert present is not None and memory.find(keys, len(keys)) == present
    return present.length, list(memory.take_edits())


def test_what_has_to_go_is_parked_and_comes_back() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, *range(1, 11))
    run(memory, 0, 21, 22, 23, 24, 25)
    park_all(memory)
    assert (memory.room.num_free, memory.room.num_used) == (100, 0)
    keys = [*range(1, 12)]
    found = memory.find(keys, 10)
    assert found.length == 10
    assert memory.num_needed(found, 11) == 11
    length, edits = restore(memory, keys)
    assert length == 10 and memory.room.num_used == 10
    assert [type(edit) for edit in edits] == [Restore] * 3 + [RestoreState]
    assert [(edit.start, edit.count) for edit in edits if isinstance(edit, Restore)] == [
        (0, 4),
        (4, 4),
        (8, 2),
    ]
    assert begin(memory, 0, *keys) == 10


def test_checkpoints_share_their_blocks_and_come_back_to_what_others_have() -> None:
    memory = make(most_parked=1000, holders=20)
    run(memory, 0, *range(1, 13))
    run(memory, 0, *range(1, 13), 13, 14)
    run(memory, 0, *range(1, 13), 23, 24)
    park_all(memory)
    lengths = {11: 3, 12: 4, 13: 1, 14: 2}  # their last blocks; 8 are those of all
    assert memory.counts.parked == 8 + lengths[11] + lengths[12] + 2 * (lengths[13] + lengths[14])
    begin(memory, 1, *range(1, 11), 33, 34)
    read(memory, 1, 12)
    memory.take_edits()
    length, edits = restore(memory, [*range(1, 13), 13, 14, 15])
    assert length == 14
    assert isinstance(edits[0], Copy) and edits[0].is_bare and edits[0].length == 8
    assert memory.room.num_used == 12 + 6


def test_what_layers_with_a_window_have_is_shared_with_nobody() -> None:
    memory = make(most_parked=1000, holders=20, window=5)
    run(memory, 0, *range(1, 15))
    park_all(memory)
    begin(memory, 1, *range(1, 13), 33, 34)
    read(memory, 1, 14)
    memory.take_edits()
    length, edits = restore(memory, [*range(1, 15)])
    assert length == 14
    assert isinstance(edits[0], Copy) and edits[0].is_bare and edits[0].length == 8, (
        "of the 9 before it"
    )


def test_what_comes_back_stays_parked_and_goes_again_at_once() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, 1, 2, 3, 4, 5, 6)
    park_all(memory)
    restore(memory, [1, 2, 3, 4, 5, 6])
    memory.make_room(100, num_urgent=0)
    assert all(isinstance(edit, Clear) for edit in memory.take_edits())
    assert memory.find([1, 2, 3, 4, 5, 6], 6).length == 6


def test_only_so_much_is_copied_before_a_step() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, *range(1, 11))
    num_steps = 0
    while memory.room.num_free < 100:
        memory.allowance.renew(4, most_whole=4)
        memory.make_room(100, num_urgent=0)
        memory.check_integrity()
        moved = [edit for edit in memory.take_edits() if isinstance(edit, Offload | OffloadState)]
        assert 0 < sum(edit.count for edit in moved) <= 4
        num_steps += 1
    assert num_steps > 3
    keys = [*range(1, 11)]
    for _ in range(20):
        memory.allowance.renew(4, most_whole=4)
        present = memory.fetch(memory.find(keys, 10))
        if present is not None:
            break
        moved = [edit for edit in memory.take_edits() if isinstance(edit, Restore | RestoreState)]
        assert 0 < sum(edit.count for edit in moved) <= 4
        memory.check_integrity()
    assert memory.find(keys, 10) == present


def test_what_is_urgent_is_not_waited_for() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, *range(1, 11))
    memory.allowance.renew(4, most_whole=4)
    assert memory.make_room(100, num_urgent=100) == 100
    memory.check_integrity()
    memory.allowance.renew(1000)
    assert memory.find([*range(1, 11)], 10) == Found(), "it could not be copied in time"


def test_a_state_that_surely_takes_too_long_is_neither_parked_nor_awaited() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, 1, 2, 3, 4, 5, 6)
    park_all(memory)
    run(memory, 0, 11, 12, 13, 14, 15, 16)
    memory.allowance.renew(1, most_whole=1)
    assert memory.make_room(100, num_urgent=0) == 100
    assert memory.find([1, 2, 3, 4, 5, 6], 6) == Found(), "beside streams it is computed"
    memory.allowance.renew(1000)
    assert memory.find([1, 2, 3, 4, 5, 6], 6).length == 6
    assert memory.find([11, 12, 13, 14, 15, 16], 6) == Found()


def test_what_nobody_waits_for_any_more_gives_its_cells_up() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, *range(1, 11))
    park_all(memory)
    memory.allowance.renew(4, most_whole=4)
    found = memory.find([*range(1, 11)], 10)
    assert memory.fetch(found) is None
    memory.take_edits()
    assert memory.room.num_used == 4
    memory.take_edits()
    memory.check_integrity()
    assert memory.room.num_used == 0
    assert memory.find([*range(1, 11)], 10).length == 10, "it is still parked"


def test_host_memory_is_bounded_and_what_is_worth_least_leaves_it() -> None:
    memory = make(most_parked=40, gap=8)
    for family in range(1, 9):
        run(memory, 0, *range(100 * family, 100 * family + 8))
        park_all(memory)
        memory.check_integrity()
        assert memory.counts.parked <= 40
    assert memory.find([*range(100, 108)], 8) == Found()
    assert memory.find([*range(800, 808)], 8).length == 8


def test_numbers_that_run_short_are_no_loss_where_it_is_parked_ahead() -> None:
    memory = make(holders=4, gap=8, most_parked=1000)
    for family in (1, 2, 3, 4, 5):
        run(memory, 0, *range(100 * family, 100 * family + 8))
        memory.make_room(0, num_urgent=0)
        memory.take_edits()
    assert memory.find([*range(100, 108)], 8).length == 8
    assert restore(memory, [*range(100, 108)])[0] == 8


def test_what_could_not_be_restored_is_not_found_again_nor_what_shares_its_blocks() -> None:
    memory = make(most_parked=1000)
    run(memory, 0, *range(1, 7))
    run(memory, 0, *range(1, 7), 7, 8)
    run(memory, 0, 21, 22, 23, 24, 25)
    park_all(memory)
    length, edits = restore(memory, [*range(1, 9)])
    lost = memory.lose(edits[-1].holder if isinstance(edits[-1], RestoreState) else -1)
    memory.check_integrity()
    assert length == 8 and len(lost) > 1
    assert memory.find([*range(1, 9)], 8) == Found()
    assert memory.find([21, 22, 23, 24, 25], 5).length == 5


def test_a_stored_prompt_has_checkpoints_that_are_adopted() -> None:
    memory = make()
    stored = stored_checkpoints(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, lengths=(3, 8, 10), block=4)
    own = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20]
    assert memory.find(own, 9, stored).num_stored == 8
    assert memory.find(own, 7, stored).num_stored == 3
    assert memory.find(own, 9, stored_prompt(*range(1, 11), piece=10)) == Found()
    name = memory.adopt(stored.first(8))
    memory.check_integrity()
    adopted = memory.take_edits()
    kinds = [Put] * 5
    assert [type(edit) for edit in adopted] == kinds
    assert memory.find(own, 9) == Found(8, name)
    assert restore(memory, own)[0] == 8
    assert memory.counts.parked == 0, "there is no room for it besides"
    assert memory.adopt(stored.first(8)) is not None, "the shorter one"


def test_who_begins_with_what_was_rolled_back_gets_a_copy_of_the_state() -> None:
    memory = make()
    history = [1, 2, 3]
    memory.enter(0, history, Found())
    read(memory, 0, 3)
    history += [4, 5]
    memory.grow(0, 1)
    memory.discard(0, memory.room.length(0))
    assert memory.take_edits()[-1] == Clear(0, 4)
    assert begin(memory, 1, 1, 2, 3, 4, 6) == 4
    assert memory.take_edits() == (Copy(0, 1, 4, is_rolled_back=True, count=2),)
    memory.leave(0)
    (copy,) = (edit for edit in memory.take_edits() if isinstance(edit, Copy))
    assert copy == Copy(0, copy.holder, 4, is_rolled_back=True, count=2)


def test_copies_of_small_windows_count_for_what_is_copied_before_the_next_step() -> None:
    memory = make(copies_state=True)
    begin(memory, 0, 1, 2, 3, 4, borders=(2,))
    memory.allowance.renew(10)
    memory.grow(0, 2)
    (copy,) = (edit for edit in memory.take_edits() if isinstance(edit, Copy))
    assert (copy.length, copy.count) == (2, 2)
    assert memory.allowance.num_moved == 0, "of the step that is over"
    memory.allowance.renew(10)
    assert memory.allowance.num_moved == 2
    memory.allowance.renew(10)
    assert memory.allowance.num_left == 10


def test_a_sequence_that_went_on_after_that_is_shared_as_always() -> None:
    memory = make()
    history = [1, 2, 3]
    memory.enter(0, history, Found())
    read(memory, 0, 3)
    history += [4, 5]
    memory.grow(0, 1)
    memory.discard(0, memory.room.length(0))
    memory.grow(0, 1)
    memory.leave(0)
    assert memory.take_edits()[-2:] == (Copy(0, 4, 5), Clear(0))
    begin(memory, 0, 7, 8, 9)
    read(memory, 0, 3)
    memory.leave(0)
    assert memory.take_edits()[-2:] == (Copy(0, 2, 3), Clear(0)), "whoever has the slot next"


def test_what_these_models_cannot_do_is_refused() -> None:
    memory = make()
    begin(memory, 0, 1, 2, 3)
    with pytest.raises(TypeError):
        memory.discard(0, 1, 1)
    assert memory.adopt(stored_prompt(1, 2)) is None


def test_checkpoints_are_handed_out_from_the_cells_or_from_host_memory() -> None:
    memory = make(most_parked=1000)
    begin(memory, 0, *range(1, 13), borders=(3, 6, 8))
    read(memory, 0, 12)
    memory.leave(0)
    keys = [*range(1, 13), 99]
    handed = memory.hand_out(keys, HandOut(most_checkpoints=4)) or []
    parts = [(one.kind, one.length) for one in handed]
    assert parts[:2] == [("cells", 4), ("cells", 4)]
    assert parts[2:] == [
        *(("tail", 3), ("state", 3), ("tail", 2), ("state", 6)),
        *(("tail", 3), ("state", 11), ("tail", 4), ("state", 12)),
    ]
    read_out = [one for part in handed for one in part.edits if isinstance(one, Offload)]
    assert [(one.start, one.count) for one in read_out] == [
        *((0, 4), (4, 4), (0, 3), (4, 2), (8, 3), (8, 4)),
    ]
    rest = memory.hand_out(keys, HandOut(8, most_checkpoints=4)) or []
    assert [(one.kind, one.length) for one in rest] == parts[6:], "from the third block on"
    assert memory.hand_out(keys, HandOut(12)) is None
    (longest,) = (one for one in memory.hand_out(keys, HandOut()) or [] if one.kind == "state")
    assert longest.length == 12
    memory.allowance.renew(4, most_whole=4)
    first = memory.hand_out(keys, HandOut(most_checkpoints=4)) or []
    assert [(one.kind, one.length) for one in first] == parts[:1]
    memory.allowance.renew(1, most_whole=1)
    assert memory.hand_out(keys, HandOut()) is None, "those who stream would wait too long"
    memory.allowance.renew(1000)
    park_all(memory)
    again = memory.hand_out(keys, HandOut(most_checkpoints=4)) or []
    assert [(one.kind, one.length) for one in again] == parts
    assert all(isinstance(edit, ReadOut) for one in again for edit in one.edits)
    assert memory.hand_out([98, 99], HandOut()) is memory.hand_out([], HandOut()) is None


def test_it_says_which_checkpoints_there_are_parked_or_not() -> None:
    memory = make(most_parked=10**6, holders=20, gap=9)
    tokens = [*range(1, 61)]
    for length in (10, 20, 30, 40, 50):
        run(memory, 0, *tokens[:length])
    assert memory.checkpoints(tokens[:40]) == (9, 19, 29, 39)
    park_all(memory)
    assert memory.checkpoints([*tokens[:35], 99]) == (9, 19, 29)
    assert memory.checkpoints([99]) == memory.checkpoints([]) == ()


def test_marks_are_gone_with_the_last_who_has_them() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4], Found(), marks=((2, 77), (4, 78)))
    read(memory, 0, 4)
    memory.leave(0)
    assert 77 in memory.marks
    empty(memory)
    assert 77 not in memory.marks
    assert set(memory.marks.take_gone(9).keys) == {77, 78}
