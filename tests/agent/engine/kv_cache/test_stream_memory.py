"""Who has which stream, what is kept where, and what is copied."""

from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.stream_memory import StreamMemory
from arriero.agent.engine.step import (
    Adopt,
    Clear,
    Discard,
    Duplicate,
    Edit,
    HandOver,
    Park,
    Place,
    Swap,
)
from tests.agent.engine.fake_engine import stored_prompt

SIZE = 1000


def make(*, slots: int = 2, num_streams: int = 2, most_parked: int = 2000) -> StreamMemory:
    return StreamMemory(
        slots=slots,
        holders=slots + 8,
        num_streams=num_streams,
        num_cells=SIZE * num_streams,
        most_parked=most_parked,
    )


def run(memory: StreamMemory, slot: int, keys: list[int]) -> tuple[int, tuple[Edit, ...]]:
    """Let a sequence with `keys` be computed in `slot`; how many of them it shared, and edits."""
    memory.take_edits()
    found = memory.find(keys, len(keys) - 1)
    assert memory.fetch(found)
    memory.enter(slot, list(keys), found)
    edits = memory.take_edits()
    memory.grow(slot, len(keys) - found.length)
    memory.check_integrity()
    return found.length, edits


def ended(memory: StreamMemory, slot: int, keys: list[int]) -> int:
    """Compute `keys` and let the sequence end; the number of the prefix that is kept of it."""
    run(memory, slot, keys)
    memory.leave(slot)
    memory.check_integrity()
    source = memory.find(keys, len(keys)).source
    assert source is not None and source >= 2
    memory.take_edits()
    return source


def text(family: int, length: int) -> list[int]:
    return [family * SIZE + place for place in range(length)]


def test_an_ended_sequence_keeps_its_stream_and_who_goes_on_gets_it() -> None:
    memory = make()
    assert run(memory, 0, text(1, 5)) == (0, (Place(0, 0),))
    memory.leave(0)
    (handed,) = memory.take_edits()
    assert isinstance(handed, HandOver) and handed.source == 0
    assert (memory.num_used, memory.num_kept, memory.num_available) == (5, 5, 2 * SIZE)
    assert run(memory, 1, text(1, 9)) == (5, (HandOver(handed.holder, 1),))
    assert (memory.num_used, memory.num_kept) == (9, 0)


def test_a_running_sequences_prefix_is_copied() -> None:
    memory = make()
    run(memory, 0, text(1, 70))
    length, edits = run(memory, 1, [*text(1, 50), 7, 7])
    assert (length, edits) == (50, (Place(1, 1), Duplicate(0, 1, 50, 70)))
    assert memory.allowance.num_moved == 70
    assert memory.num_used == 122


def test_what_makes_room_is_parked_and_copied_back() -> None:
    memory = make()
    first = ended(memory, 0, text(1, 100))
    ended(memory, 0, text(2, 100))
    assert run(memory, 0, text(3, 10)) == (0, (Park(first, 0, 100), Place(0, 0)))
    assert (memory.num_parked, memory.num_kept) == (100, 100)
    memory.leave(0)
    length, edits = run(memory, 1, [*text(1, 80), 7])
    assert length == 80
    assert edits[-1] == Duplicate(first, 1, 80, 100)
    assert memory.num_parked >= 100, "it stays where it is, for others"


def test_what_others_have_nearly_all_of_is_not_parked() -> None:
    memory = make()
    first = ended(memory, 0, text(1, 500))
    run(memory, 0, [*text(1, 490), 7])
    memory.leave(0)
    length, edits = run(memory, 0, text(3, 10))
    assert length == 0
    assert edits == (Clear(first), Place(0, 0))


def test_whose_prefix_would_have_to_go_gives_its_stream() -> None:
    memory = make(most_parked=0)
    first = ended(memory, 0, text(1, 100))
    run(memory, 0, text(2, 10))
    length, edits = run(memory, 1, [*text(1, 60), 7])
    assert (length, edits) == (60, (HandOver(first, 1), Clear(1, 60)))


def test_where_there_is_a_free_stream_a_prefix_stays_whole() -> None:
    memory = make(num_streams=3)
    first = ended(memory, 0, text(1, 100))
    length, edits = run(memory, 1, [*text(1, 60), 7])
    assert length == 60
    assert edits == (Place(1, 1), Duplicate(first, 1, 60, 100))
    assert memory.find(text(1, 100), 100) == Found(100, first)


def test_a_second_copy_before_a_step_waits_for_the_next() -> None:
    memory = make(slots=3, num_streams=3)
    run(memory, 0, text(1, 100))
    memory.allowance.renew(10)
    found = memory.find([*text(1, 90), 7], 90)
    assert memory.is_present(found), "the first one may take longer"
    memory.enter(1, [*text(1, 90), 7], found)
    assert not memory.is_present(memory.find([*text(1, 80), 8], 80))
    memory.allowance.renew(10)
    assert memory.fetch(memory.find([*text(1, 80), 8], 80))


def test_what_would_take_longer_than_a_step_is_computed() -> None:
    memory = make()
    run(memory, 0, text(1, 100))
    memory.allowance.renew(10, 99)
    assert memory.find([*text(1, 90), 7], 90) == Found()
    memory.allowance.renew(10, 100)
    assert memory.find([*text(1, 90), 7], 90) == Found(90, 0)


def test_what_is_stored_is_parked_and_copied_from_there() -> None:
    memory = make()
    stored = stored_prompt(*text(0, 40))
    holder = memory.adopt(stored)
    assert holder is not None
    assert memory.take_edits() == (Adopt(holder, stored),)
    length, edits = run(memory, 0, [*text(0, 30), 49])
    assert (length, edits) == (30, (Place(0, 0), Duplicate(holder, 0, 30, 40)))
    memory.lose(holder)
    assert memory.num_parked == 0
    memory.check_integrity()


def test_a_hole_between_those_who_generate_is_closed() -> None:
    memory = make(slots=3, num_streams=3)
    for slot, length in ((0, 50), (1, 20), (2, 30)):
        run(memory, slot, text(slot + 1, length))
    memory.leave(1)
    memory.take_edits()
    memory.arrange([0, 2])
    assert memory.take_edits() == (Swap(2, 1, 50),)
    assert [memory.place(slot) for slot in (0, 2)] == [0, 1]
    memory.check_integrity()
    memory.arrange([0, 2])
    assert memory.take_edits() == ()


def test_cells_that_move_up_are_not_copied_before_they_have() -> None:
    memory = make(slots=3, num_streams=3)
    for slot in range(3):
        run(memory, slot, text(slot + 1, 50))
    memory.clear(1)
    memory.discard(2, 4, 10)
    memory.arrange([0, 2])
    assert memory.take_edits() == (Clear(1), Discard(2, 4, 10))
    memory.arrange([0, 2])
    assert memory.take_edits() == (Swap(2, 1, 40),)


def test_less_room_than_there_should_be() -> None:
    memory = make()
    run(memory, 0, text(1, 5))
    assert memory.has_own_cells
    memory.lower_limit(3)
    assert not memory.has_own_cells
    assert memory.num_available == memory.make_room(1) == 3
    memory.raise_limit(10)
    assert memory.num_available == 10
    memory.trust()
    assert memory.num_available == 2 * SIZE - 5
    assert not memory.empty_cells()


def test_what_can_be_read_of_a_prefix() -> None:
    memory = make()
    keys = text(1, 20)
    source = ended(memory, 0, keys)
    assert memory.exportable([*keys, 7], 5) == (source, 15)
    assert memory.exportable(keys[:8], 5) == (source, 3)
    assert memory.exportable(keys, 20) is None
    assert memory.exportable(text(2, 3), 0) is None
