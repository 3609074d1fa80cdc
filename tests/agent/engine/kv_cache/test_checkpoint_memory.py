"""Where checkpoints are taken, who begins with which, and which go when there is no room."""

import pytest

from arriero.agent.engine.kv_cache.checkpoint_memory import CheckpointMemory
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.step import Clear, Copy, Load
from tests.agent.engine.fake_engine import stored_prompt


def make(*, num_cells: int = 100, holders: int = 6, gap: int = 1) -> CheckpointMemory:
    return CheckpointMemory(slots=2, holders=holders, num_cells=num_cells, gap=gap)


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
    while (length := memory.length(slot)) < until:
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
    memory.clear(0)
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
    memory.clear(0)
    memory.empty_cells()
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
    memory.expect(0, 5)
    memory.expect(0, 5)
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
    memory.truncate(0, 0)
    memory.check_integrity()
    memory.leave(0)
    assert memory.find([1, 2, 3, 4, 5, 6], 6).length == 3


def test_whoever_is_preempted_goes_on_where_it_stood() -> None:
    memory = make()
    begin(memory, 0, 1, 2, 3, 4, 5, 6)
    memory.grow(0, 3)
    memory.preempt(0)
    assert (memory.num_kept, memory.num_available) == (3, 100)
    assert begin(memory, 1, 1, 2, 3, 4, 5, 6) == 3


def test_checkpoints_go_for_cells_those_first_that_save_least() -> None:
    memory = make(num_cells=20, gap=4)
    run(memory, 0, *range(1, 11))
    run(memory, 0, *range(1, 11), 11, 12, 13, 14)
    run(memory, 0, 21, 22, 23, 24)
    assert memory.num_free == 20 - 13 - 4
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
    num_used = memory.num_used
    assert run(memory, 0, 1, 2, 3, 4, 5, 6) == 5
    assert memory.num_used == num_used


def test_room_is_counted_with_what_only_checkpoints_have() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4)
    found = memory.find([1, 2, 3, 4, 5], 4)
    assert memory.num_needed(found, 5) == 5
    assert memory.num_needed(Found(), 5) == 5
    memory.enter(0, [1, 2, 3, 4, 5], found)
    assert memory.num_needed(memory.find([1, 2, 3, 4, 6], 4), 5) == 1, "the rest is in use"
    assert memory.is_present(found) and memory.fetch(found)


def test_what_could_not_be_copied_is_not_found_again() -> None:
    memory = make()
    run(memory, 0, 1, 2, 3, 4)
    assert begin(memory, 0, 1, 2, 3, 4, 5) == 4
    memory.lose(0)
    memory.clear(0)
    assert memory.find([1, 2, 3, 4, 5], 4).length == 3, "the one before it"
    begin(memory, 0, 6, 7, 8, 9)
    memory.grow(0, 2)
    assert begin(memory, 1, 6, 7, 9) == 2
    memory.lose(1)
    memory.clear(1)
    memory.check_integrity()
    assert memory.find([6, 7, 9], 2) == Found()
    memory.clear(0)


def test_all_checkpoints_go_when_the_cells_have_to_be_empty() -> None:
    memory = make()
    assert not memory.empty_cells()
    run(memory, 0, 1, 2, 3, 4)
    assert memory.empty_cells()
    assert memory.num_used == 0
    memory.check_integrity()


def test_a_stored_prompt_goes_straight_into_a_slot() -> None:
    memory = make(num_cells=8)
    run(memory, 0, 11, 12, 13, 14)
    memory.take_edits()
    stored = stored_prompt(1, 2, 3, 4, 5, piece=5)
    memory.load(0, [1, 2, 3, 4, 5, 6], stored, 5)
    assert isinstance(memory.take_edits()[-1], Load)
    assert memory.length(0) == 5
    memory.check_integrity()
    with pytest.raises(ValueError, match="part"):
        memory.load(1, [1, 2, 3], stored, 3)


def test_who_begins_with_what_was_rolled_back_gets_a_copy_of_the_state() -> None:
    memory = make()
    history = [1, 2, 3]
    memory.enter(0, history, Found())
    read(memory, 0, 3)
    history += [4, 5]
    memory.grow(0, 1)
    memory.sweep(0)
    assert memory.take_edits()[-1] == Clear(0, 4)
    assert begin(memory, 1, 1, 2, 3, 4, 6) == 4
    assert memory.take_edits() == (Copy(0, 1, 4, is_rolled_back=True),)
    memory.leave(0)
    (copy,) = (edit for edit in memory.take_edits() if isinstance(edit, Copy))
    assert copy == Copy(0, copy.holder, 4, is_rolled_back=True)


def test_a_sequence_that_went_on_after_that_is_shared_as_always() -> None:
    memory = make()
    history = [1, 2, 3]
    memory.enter(0, history, Found())
    read(memory, 0, 3)
    history += [4, 5]
    memory.grow(0, 1)
    memory.sweep(0)
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
    with pytest.raises(TypeError):
        memory.adopt(stored_prompt(1, 2))
    assert memory.exportable([1, 2, 3], 0) is None


def test_marks_are_gone_with_the_last_who_has_them() -> None:
    memory = make()
    memory.enter(0, [1, 2, 3, 4], Found(), marks=((2, 77), (4, 78)))
    read(memory, 0, 4)
    memory.leave(0)
    assert 77 in memory.marks
    memory.empty_cells()
    assert 77 not in memory.marks
    assert set(memory.marks.take_gone(9).keys) == {77, 78}
