"""What is read from disk for those who wait: when it pays, where it begins, and in which parts."""

from dataclasses import replace

import pytest

from arriero.agent.engine.kv_cache.stream_memory import StreamMemory
from arriero.agent.engine.prompt_store.blocks import CheckpointOnDisk, OnDisk
from arriero.agent.engine.prompt_store.stored_prompt import Piece, StoredPrompt
from arriero.agent.engine.scheduling.disk_reads import (
    LEAST_PATIENCE,
    PART_BYTES,
    UNKNOWN_PATIENCE,
    DiskRead,
    DiskReads,
)
from arriero.agent.engine.scheduling.progress import Progress
from tests.agent.engine.setting import Setting

FOUND = OnDisk(("a", "b", "c"), seconds=1.0, block=8)
PROMPT = tuple(range(1, 31))


class Reads(Setting):
    """What is on disk of a prompt of 30 tokens are its first 24."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)  # type: ignore[arg-type]
        self.reads = self.state.disk_reads

    def one(self, number: int = 1, found: OnDisk = FOUND) -> Progress:
        one = self.add(number, *PROMPT)
        one.on_disk = found
        return one

    def asked(self, one: Progress, num_ready: int = 0) -> DiskRead:
        assert self.reads.waits(one, num_ready)
        self.reads.ask(one, num_ready)
        (read,) = self.reads.take()
        return read

    def learn(self, seconds_per_token: float) -> None:
        for size in (10, 20, 40):
            self.budget.cost.observe(
                num_generating=0, num_prompt_tokens=size, seconds=size * seconds_per_token
            )


def part_of(read: DiskRead, num_tokens: int | None = None) -> StoredPrompt:
    blocks = read.blocks
    prompt = blocks.prompt if num_tokens is None else blocks.prompt.part(0, num_tokens)
    return StoredPrompt(prompt, (Piece(len(prompt) - blocks.start, b"x"),), blocks.start)


def test_whole_blocks_are_read_in_one_part_where_they_are_small() -> None:
    setting = Reads()
    one = setting.one()
    read = setting.asked(one)
    assert (read.id, read.blocks.start, read.blocks.prompt.tokens) == (1, 0, PROMPT[:24])
    assert read.blocks.names == FOUND.names
    assert setting.reads.is_reading and setting.reads.take() == []
    setting.reads.arrived(one, part_of(read))
    assert one.stored == part_of(read)
    assert one.on_disk is None and not setting.reads.is_reading


def test_reading_begins_behind_the_blocks_that_memory_has() -> None:
    setting = Reads()
    read = setting.asked(setting.one(), num_ready=17)
    assert (read.blocks.start, len(read.blocks.prompt)) == (16, 24)


@pytest.mark.parametrize("num_ready", [23, 24, 30])
def test_nobody_waits_for_little(num_ready: int) -> None:
    setting = Reads()
    one = setting.one()
    assert not setting.reads.waits(one, num_ready)
    assert one.on_disk is None, "and it is not asked again"


def test_long_prefixes_come_in_parts() -> None:
    setting = Reads(cell_bytes=PART_BYTES // 17)
    one = setting.one()
    first = setting.asked(one)
    assert (first.blocks.start, len(first.blocks.prompt)) == (0, 16)
    assert first.blocks.names == FOUND.names[:2]
    setting.reads.arrived(one, part_of(first))
    assert one.on_disk is FOUND
    rest = setting.asked(one, num_ready=16)
    assert (rest.blocks.start, len(rest.blocks.prompt)) == (16, 24)


def test_a_part_has_a_block_at_least() -> None:
    setting = Reads(cell_bytes=PART_BYTES)
    assert len(setting.asked(setting.one()).blocks.prompt) == 8


def test_in_streams_all_is_read_as_a_whole() -> None:
    setting = Reads(num_streams=2, num_cells=128, cell_bytes=PART_BYTES)
    assert isinstance(setting.memory, StreamMemory)
    read = setting.asked(setting.one(), num_ready=8)
    assert (read.blocks.start, len(read.blocks.prompt)) == (0, 24)


def test_one_prefix_is_read_at_a_time() -> None:
    setting = Reads()
    first, second = setting.one(), setting.one(2)
    read = setting.asked(first)
    assert setting.reads.waits(second, 0)
    setting.reads.ask(second, 0)
    assert setting.reads.take() == []
    setting.reads.arrived(first, part_of(read))
    assert setting.asked(second).id == 2


def test_reading_that_is_slower_than_computing_does_not_pay() -> None:
    setting = Reads()
    setting.learn(0.01)
    assert not setting.reads.waits(setting.one(), 0), "three seconds against a quarter of one"
    fast = replace(FOUND, seconds=0.01)
    assert setting.reads.waits(setting.one(2, fast), 0)


def test_it_is_waited_for_as_long_as_computing_takes() -> None:
    setting = Reads()
    assert setting.asked(setting.one()).blocks.patience == UNKNOWN_PATIENCE
    for seconds, patience in ((0.001, LEAST_PATIENCE), (1.0, pytest.approx(24.0, rel=0.3))):
        setting = Reads()
        setting.learn(seconds)
        read = setting.asked(setting.one(found=replace(FOUND, seconds=0.001)))
        assert read.blocks.patience == patience


@pytest.mark.parametrize("num_tokens", [None, 8])
def test_what_could_not_be_read_is_not_tried_again(num_tokens: int | None) -> None:
    setting = Reads()
    one = setting.one()
    read = setting.asked(one)
    prefix = None if num_tokens is None else part_of(read, num_tokens)
    setting.reads.arrived(one, prefix)
    assert one.on_disk is None
    assert one.stored == prefix


def test_what_has_gone_again_is_not_read_twice() -> None:
    setting = Reads(cell_bytes=PART_BYTES // 17)
    one = setting.one()
    setting.reads.arrived(one, part_of(setting.asked(one)))
    assert not setting.reads.waits(one, 8)


def test_who_has_gone_gets_nothing() -> None:
    setting = Reads()
    setting.asked(setting.one())
    setting.reads.arrived(None, None)
    assert not setting.reads.is_reading


class TestCheckpoints:
    FOUND = OnDisk(("a", "b"), 1.0, block=8, checkpoint=CheckpointOnDisk("c", 21, 0.5))

    def test_one_is_read_as_a_whole_from_the_beginning(self) -> None:
        setting = Reads(checkpoint_gap=4, cell_bytes=PART_BYTES)
        one = setting.one(found=self.FOUND)
        blocks = setting.asked(one, num_ready=9).blocks
        assert (blocks.start, blocks.prompt.tokens) == (0, PROMPT[:21])
        assert (blocks.names, blocks.checkpoint) == (("a", "b"), "c")
        setting.reads.arrived(one, None)
        assert one.on_disk is None and not setting.reads.waits(one, 9)

    def test_one_that_ends_later_is_of_no_use(self) -> None:
        setting = Reads(checkpoint_gap=4)
        one = setting.add(1, *PROMPT[:21])
        one.on_disk = self.FOUND
        assert not setting.reads.waits(one, 0)

    def test_nobody_waits_for_what_cannot_be_copied_beside_streams(self) -> None:
        setting = Reads(checkpoint_gap=4, state_bytes=100)
        one = setting.one(found=self.FOUND)
        setting.memory.allowance.renew(50, 50)
        assert not setting.reads.waits(one, 0)
        setting.memory.allowance.renew(50)
        assert setting.reads.waits(one, 0), "and it is not forgotten"


def test_nothing_on_disk_is_nothing_to_wait_for() -> None:
    setting = Reads()
    assert not DiskReads.waits(setting.reads, setting.add(1, *PROMPT), 0)
