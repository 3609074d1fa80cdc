"""What becomes of a slot, whoever decides it."""

from arriero.agent.engine.capacity import BLOCK
from arriero.agent.engine.kv_cache.stream_memory import StreamMemory
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.agent.engine.prompt_store.blocks import Left
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.step import Decoded
from tests.agent.engine.setting import Setting


def running(setting: Setting) -> tuple[int, Progress]:
    """A sequence of three tokens that are computed, and its slot."""
    one = setting.add(1, 5, 6, 7)
    setting.accounting.account(setting.plan(), Decoded((8,)), 0.1, 0.0)
    (slot,) = setting.queue.running
    return slot, one


def test_what_a_sequence_computed_stays_when_it_is_over() -> None:
    setting = Setting()
    slot, _ = running(setting)
    setting.state.leave(slot)
    assert setting.queue.running == {}
    assert setting.memory.room.num_kept == 3


def test_a_sequence_that_gives_up_its_cells_waits_to_compute_them_again() -> None:
    setting = Setting()
    slot, one = running(setting)
    setting.state.requeue(slot)
    assert setting.queue.waiting == [one]
    assert (one.num_computed, setting.memory.room.num_used) == (0, 0)


def test_of_a_slot_that_is_cleared_nothing_is_kept() -> None:
    setting = Setting()
    slot, one = running(setting)
    assert setting.state.clear(slot) is one
    assert setting.queue.everybody == ()
    assert setting.memory.room.num_used == 0


def large(*, checkpoint_gap: int = 0) -> Setting:
    return Setting(
        ceiling=999,
        num_cells=999,
        batch_size=999,
        most_mixed=998,
        checkpoint_gap=checkpoint_gap,
    )


def left_after(setting: Setting, num_tokens: int) -> list[Left]:
    """What a sequence with a prompt of so many tokens leaves."""
    setting.state.notes_left = True
    one = setting.add(1, *range(num_tokens))
    while not one.num_generated:
        step = setting.plan()
        tokens = tuple(8 for run in step.runs if run.samples)
        setting.accounting.account(step, Decoded(tokens), 0.1, 0.0)
    (slot,) = setting.queue.running
    setting.state.leave(slot)
    return setting.state.left


def test_what_a_sequence_leaves_is_noted_in_whole_blocks() -> None:
    (left,) = left_after(large(), 200)
    assert left.prompt.tokens == tuple(range(BLOCK))
    assert left.checkpoints == ()


def test_or_to_its_last_checkpoint() -> None:
    (left,) = left_after(large(checkpoint_gap=4), 200)
    assert left.prompt.tokens == tuple(range(left.checkpoints[-1]))
    assert left.checkpoints[0] == 199, "before the last token"
    assert left_after(large(checkpoint_gap=4), 100) == [], "that is too short"


def test_each_layout_has_its_memory() -> None:
    assert isinstance(Setting().memory, UnifiedMemory)
    assert isinstance(Setting(num_streams=3).memory, StreamMemory)
