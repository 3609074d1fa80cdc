"""What all kinds of memory do alike: counts, limits, borders, edits."""

from collections.abc import Callable

import pytest

from arriero.agent.engine.kv_cache.checkpoint_memory import CheckpointMemory
from arriero.agent.engine.kv_cache.greedy_dual import GreedyDual
from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.memory import Memory
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.stream_memory import StreamMemory
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.step import Clear
from arriero.shared.reports.statistics import Cells as Counts

KINDS: list[Callable[[], Memory]] = [
    lambda: UnifiedMemory(
        slots=2, holders=4, num_cells=20, policy=LeastRecentlyUsed(), most_parked=0
    ),
    lambda: CheckpointMemory(slots=2, holders=4, num_cells=20, policy=GreedyDual(), gap=1),
]


def enter(memory: Memory, slot: int, keys: list[int]) -> None:
    memory.enter(slot, keys, memory.find(keys, len(keys) - 1))
    memory.grow(slot, len(keys) - memory.room.length(slot))
    memory.check_integrity()


@pytest.fixture(params=KINDS, ids=["unified", "checkpoint"])
def memory(request: pytest.FixtureRequest) -> Memory:
    """A kept prefix of two cells, a sequence that goes on from it with three more, and another."""
    made: Memory = request.param()
    enter(made, 0, [1, 2])
    made.leave(0)
    enter(made, 0, [1, 2, 3, 4, 5])
    enter(made, 1, [6])
    return made


def test_cells_are_in_use_kept_or_free(memory: Memory) -> None:
    assert (memory.room.num_used, memory.room.num_kept) == (6, 0)
    assert (memory.room.num_available, memory.room.num_free) == (14, 14)
    assert memory.counts == Counts(total=20, used=6, kept=0, parked=0)
    memory.leave(0, keeps=False)
    assert (memory.room.num_used, memory.room.num_kept, memory.room.num_available) == (3, 2, 19)


def test_a_limit_holds_until_it_is_raised(memory: Memory) -> None:
    memory.room.limit(1)
    assert (memory.room.num_available, memory.room.num_free) == (1, 1)
    memory.room.limit(2)
    assert memory.room.num_free == 2
    memory.room.limit()
    assert memory.room.num_free == 14
    memory.check_integrity()


def test_edits_are_taken_once(memory: Memory) -> None:
    memory.take_edits()
    memory.leave(1, keeps=False)
    assert memory.take_edits() == (Clear(1),)
    assert memory.take_edits() == ()


def test_a_part_of_a_prompt_ends_where_others_wait_for_it(memory: Memory) -> None:
    for length in (4, 3, 4, 1):
        memory.fetch(Found(length, 1))
    assert memory.next_border(1) == 3
    memory.grow(1, 2)
    assert memory.next_border(1) == 4
    memory.grow(1, 2)
    assert memory.next_border(1) is None
    memory.check_integrity()


def test_the_order_in_a_batch_matters_with_streams_alone(memory: Memory) -> None:
    memory.leave(0)
    memory.leave(1)
    assert [memory.enter(slot, [slot], Found()) for slot in (1, 0)] == [0, 0]
    streams = StreamMemory(
        slots=2, holders=4, num_streams=2, num_cells=20, policy=LeastRecentlyUsed(), most_parked=0
    )
    assert [streams.enter(slot, [slot], Found()) for slot in (1, 0)] == [0, 1]
