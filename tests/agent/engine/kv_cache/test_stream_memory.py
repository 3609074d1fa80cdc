"""Who has which stream, what is kept where, and what is copied."""

from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.stream_memory import StreamCells, StreamMemory
from arriero.agent.engine.step import Clear, Copy, Edit, Place, Put, Restore
from tests.agent.engine.fake_engine import stored_prompt

SIZE = 1000


def make(*, slots: int = 2, num_streams: int = 2, most_parked: int = 2000) -> StreamMemory:
    return StreamMemory(
        slots=slots,
        holders=slots + 8,
        num_streams=num_streams,
        num_cells=SIZE * num_streams,
        policy=LeastRecentlyUsed(),
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
    handed, cleared = memory.take_edits()
    assert isinstance(handed, Place) and (handed.stream, handed.source) == (0, 0)
    assert cleared == Clear(0), "it has none any more"
    room = memory.room
    assert (room.num_used, room.num_kept, room.num_available) == (5, 5, 2 * SIZE)
    length, edits = run(memory, 1, text(1, 9))
    assert (length, edits[0]) == (5, Place(1, 0, handed.holder))
    assert (memory.room.num_used, memory.room.num_kept) == (9, 0)


def test_a_running_sequences_prefix_is_copied() -> None:
    memory = make()
    run(memory, 0, text(1, 70))
    length, edits = run(memory, 1, [*text(1, 50), 7, 7])
    assert (length, edits) == (50, (Place(1, 1), Copy(0, 1, 50, count=70)))
    assert memory.allowance.num_moved == 70
    assert memory.room.num_used == 122


def test_what_was_not_used_for_the_longest_time_makes_room() -> None:
    memory = make()
    first = ended(memory, 0, text(1, 100))
    ended(memory, 0, text(2, 100))
    assert run(memory, 0, text(3, 10)) == (0, (Clear(first), Place(0, 0)))
    assert (memory.counts.parked, memory.room.num_kept) == (0, 100)


def test_whose_prefix_would_have_to_go_gives_its_stream() -> None:
    memory = make(most_parked=0)
    first = ended(memory, 0, text(1, 100))
    run(memory, 0, text(2, 10))
    length, edits = run(memory, 1, [*text(1, 60), 7])
    assert (length, edits[:2]) == (60, (Place(1, 0, first), Clear(1, 60)))


def test_where_there_is_a_free_stream_a_prefix_stays_whole() -> None:
    memory = make(num_streams=3)
    first = ended(memory, 0, text(1, 100))
    length, edits = run(memory, 1, [*text(1, 60), 7])
    assert length == 60
    assert edits == (Place(1, 1), Copy(first, 1, 60, count=100))
    assert memory.find(text(1, 100), 100) == Found(100, first)


def test_a_second_copy_before_a_step_waits_for_the_next() -> None:
    memory = make(slots=3, num_streams=3)
    run(memory, 0, text(1, 100))
    memory.allowance.renew(10)
    found = memory.find([*text(1, 90), 7], 90)
    assert memory.fetch(found) == found, "the first one may take longer"
    memory.enter(1, [*text(1, 90), 7], found)
    assert memory.fetch(memory.find([*text(1, 80), 8], 80)) is None
    memory.allowance.renew(10)
    assert memory.fetch(memory.find([*text(1, 80), 8], 80))


def test_what_would_take_longer_than_a_step_is_computed() -> None:
    memory = make()
    run(memory, 0, text(1, 100))
    memory.allowance.renew(10, 99)
    assert memory.find([*text(1, 90), 7], 90) == Found()
    memory.allowance.renew(10, 100)
    assert memory.find([*text(1, 90), 7], 90) == Found(90, 0)


def test_what_is_stored_comes_back_into_a_stream() -> None:
    memory = make()
    stored = stored_prompt(*text(0, 40), piece=30)
    holder = memory.adopt(stored)
    assert holder is not None
    puts = [edit for edit in memory.take_edits() if isinstance(edit, Put)]
    assert (len(puts), memory.counts.parked) == (2, 40)
    length, edits = run(memory, 0, [*text(0, 40), 49])
    assert (length, edits[0]) == (40, Place(holder, 0))
    restored = [edit for edit in edits if isinstance(edit, Restore)]
    assert [(one.start, one.count) for one in restored] == [(0, 30), (30, 10)]
    assert Place(0, 0, holder) in edits
    assert memory.counts.parked == 0


def test_what_is_stored_may_be_lost() -> None:
    memory = make()
    holder = memory.adopt(stored_prompt(*text(0, 40)))
    assert holder is not None
    memory.lose(holder)
    assert memory.counts.parked == 0
    assert memory.find(text(0, 40), 39) == Found()
    memory.check_integrity()


def test_less_room_than_there_should_be() -> None:
    memory = make()
    run(memory, 0, text(1, 5))
    memory.room.limit(3)
    assert memory.room.num_available == memory.make_room(1) == 3
    memory.room.limit()
    assert memory.room.num_available == 2 * SIZE - 5


def test_what_can_be_read_of_a_prefix() -> None:
    memory = make()
    keys = text(1, 20)
    source = ended(memory, 0, keys)
    whole = memory.hand_out([*keys, 7], HandOut(5))
    assert whole is not None and [part.length for part in whole] == [15]
    (part,) = memory.hand_out(keys[:8], HandOut(5)) or []
    assert part.length == 3
    assert memory.hand_out(keys, HandOut(20)) is None
    assert memory.hand_out(text(2, 3), HandOut()) is None
    memory.allowance.renew(10, 19)
    assert memory.hand_out(keys, HandOut()) is None, "the state of a stream is read as a whole"
    assert memory.find(keys, 20).source == source


def test_a_holder_gets_the_first_free_stream() -> None:
    streams = StreamCells(slots=2, count=2)
    assert [streams.open(7), streams.open(8)] == [Place(7, 0), Place(8, 1)]
    assert not streams.has_free
    streams.close(7)
    assert (streams.stream(7), streams.stream(8)) == (None, 1)
    assert streams.open(0) == Place(0, 0)
    streams.check_integrity()


def test_what_is_copied_counts_twice() -> None:
    streams = StreamCells(slots=1, count=2)
    streams.open(0)
    streams.grow(0, 10)
    streams.open(5)
    assert streams.copy(0, 5, 4) == Copy(0, 5, 4, count=10)
    assert (streams.num_used, streams.num_in_use, streams.num_alone(5)) == (14, 10, 4)
    streams.check_integrity()


def test_a_stream_is_handed_over_with_its_first_cells() -> None:
    streams = StreamCells(slots=1, count=1)
    streams.open(0)
    streams.grow(0, 10)
    assert streams.hand_over(0, 5, 10) == [Place(5, 0, 0)]
    assert streams.hand_over(5, 0, 8) == [Place(0, 0, 5), Clear(0, 8)]
    assert (streams.num_used, streams.num_in_use) == (8, 8)
    streams.check_integrity()
