"""The disk tier: what is written, found and read, and that nothing bad on disk does any harm."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.capacity import BLOCK
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store import disk_cache
from arriero.agent.engine.prompt_store.blocks import Left, ReadBlocks
from arriero.agent.engine.prompt_store.cache_folder import (
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    UNFINISHED_SUFFIX,
    CacheFolder,
    Write,
    write_whole,
)
from arriero.agent.engine.prompt_store.disk_cache import LOOK_AGAIN, PAUSE, DiskCache
from arriero.agent.engine.prompt_store.stored_prompt import (
    Origin,
    Piece,
    State,
    StoredPrompt,
    StoredState,
    pack,
)
from tests.agent.engine.prompt_store.test_prompt_store import ORIGIN
from tests.waiting import HANGS

CELL_BYTES = 2
TOKENS = tuple(range(1, 3 * BLOCK + 10))
PROMPT = Prompt(TOKENS)
SLOW = 1e6
"""Seconds that computing takes: anything on disk is worth it."""


def states(prompt: Prompt, start: int) -> tuple[Piece, ...]:
    """Two pieces of a block, by which their place and their tokens are known."""
    middle = start + BLOCK // 2
    return tuple(
        Piece(stop - first, b"%d:%d;" % (first, sum(prompt.keys[first:stop]) % 1000))
        for first, stop in ((start, middle), (middle, start + BLOCK))
    )


class Engine:
    """Hands out what it has; `num_cells` of any prompt."""

    def __init__(self) -> None:
        self.num_cells = 10**6
        self.asked: list[tuple[int, int]] = []

    def hand_out(
        self,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
        *,
        start: int,
        can_wait: bool,
    ) -> Callable[[], None]:
        assert can_wait, "nobody waits for it"
        self.asked.append((start, len(prompt)))
        has_it = len(prompt) <= self.num_cells
        reply(StoredPrompt(prompt, states(prompt, start), start) if has_it else None)
        return lambda: None


class Setup:
    def __init__(self, disk: DiskCache, engine: Engine, path: Path) -> None:
        self.disk = disk
        self.engine = engine
        self.path = path

    def write(self, prompt: Prompt = PROMPT, seconds: float = SLOW) -> None:
        """Offer `prompt`; what is worth it is on disk then."""
        self.disk.offer(Left(prompt, seconds))
        self.disk.finish(HANGS)

    def read(
        self, prompt: Prompt = PROMPT, start: int = 0, patience: float = HANGS
    ) -> StoredPrompt | None:
        found = self.disk.find(prompt)
        assert found is not None
        whole = prompt.part(0, found.num_tokens)
        answers: queue.Queue[StoredPrompt | None] = queue.Queue()
        self.disk.read(ReadBlocks(whole, found.names, start, patience), answers.put)
        return answers.get(timeout=HANGS)

    @property
    def blocks(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if path.suffix == BLOCK_SUFFIX)


@contextmanager
def opened(
    path: Path,
    *,
    origin: Origin = ORIGIN,
    limit: int = 10**6,
    write: Write = write_whole,
    clock: Callable[[], float] = lambda: 0.0,
) -> Iterator[Setup]:
    engine = Engine()
    folder = CacheFolder(path, limit_bytes=limit, write=write)
    disk = DiskCache(
        folder, origin=origin, cell_bytes=CELL_BYTES, hand_out=engine.hand_out, clock=clock
    )
    try:
        yield Setup(disk, engine, path)
    finally:
        disk.close()


def num_found(setup: Setup, prompt: Prompt = PROMPT) -> int:
    found = setup.disk.find(prompt)
    return 0 if found is None else found.num_tokens


def whole_of(prompt: Prompt, num_blocks: int, start: int = 0) -> StoredPrompt:
    pieces = [
        piece for n in range(start // BLOCK, num_blocks) for piece in states(prompt, n * BLOCK)
    ]
    return StoredPrompt(prompt.part(0, num_blocks * BLOCK), tuple(pieces), start)


def test_what_a_sequence_left_is_found_and_read(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        assert setup.disk.find(PROMPT) is None
        setup.write()
        assert num_found(setup) == 3 * BLOCK
        assert setup.read() == whole_of(PROMPT, 3)
        assert setup.read(start=BLOCK) == whole_of(PROMPT, 3, BLOCK)
        use = setup.disk.use
        assert (use.blocks, use.written, use.read, use.tokens) == (3, 3, 5, 5 * BLOCK)
        assert use.bytes == sum(path.stat().st_size for path in setup.blocks)
        assert (use.failed_reads, use.failed_writes) == (0, 0)


def test_it_is_there_after_a_restart_and_for_another_agent(tmp_path: Path) -> None:
    with opened(tmp_path) as first, opened(tmp_path) as other:
        first.write()
        assert other.read() == whole_of(PROMPT, 3), "it came after the other had looked"
        assert other.disk.use.blocks == 3
    with opened(tmp_path) as again:
        assert again.disk.use.blocks == 3
        assert again.read() == whole_of(PROMPT, 3)


def test_the_last_token_of_a_prompt_is_always_computed(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        setup.write()
        assert num_found(setup, PROMPT.part(0, 2 * BLOCK)) == BLOCK
        assert num_found(setup, PROMPT.part(0, 2 * BLOCK + 1)) == 2 * BLOCK
        assert num_found(setup, PROMPT.part(0, BLOCK)) == 0


def test_a_further_turn_writes_what_is_new(tmp_path: Path) -> None:
    longer = Prompt((*TOKENS, *range(1, 2 * BLOCK)))
    with opened(tmp_path) as setup:
        setup.write()
        setup.engine.asked.clear()
        setup.write(longer)
        assert [start for start, _ in setup.engine.asked] == [3 * BLOCK, 4 * BLOCK]
        assert setup.read(longer) == whole_of(longer, 5)


def test_what_is_computed_as_fast_as_it_is_read_is_not_written(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        setup.write(seconds=0.001)
        setup.write(seconds=0.0)
        assert setup.blocks == []
        assert setup.engine.asked == [], "the engine is not asked, either"


def test_what_leaves_the_cache_before_it_is_written_is_missing(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        setup.engine.num_cells = 2 * BLOCK
        setup.write()
        assert num_found(setup) == 2 * BLOCK


class TestScopes:
    def test_others_do_not_find_it(self, tmp_path: Path) -> None:
        mine, theirs = Prompt(TOKENS, scope="mine"), Prompt(TOKENS, scope="theirs")
        with opened(tmp_path) as setup:
            setup.write(mine)
            assert num_found(setup, mine) == 3 * BLOCK
            assert num_found(setup, theirs) == num_found(setup) == 0
            prefix = setup.read(mine)
            assert prefix is not None and prefix.prompt.keys == mine.keys[: 3 * BLOCK]

    def test_nor_under_another_adapter(self, tmp_path: Path) -> None:
        with opened(tmp_path) as setup:
            setup.write()
            assert num_found(setup, Prompt(TOKENS, adapter="a*1.0")) == 0


class TestBadFiles:
    def damaged(self, setup: Setup, caplog: pytest.LogCaptureFixture) -> list[str]:
        """What is logged at length when the second of three blocks cannot be used."""
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert setup.read() == whole_of(PROMPT, 1)
        assert setup.disk.use.failed_reads == 1
        assert num_found(setup) == BLOCK, "it is not tried again"
        return [record.getMessage() for record in caplog.records]

    def second(self, setup: Setup) -> Path:
        found = setup.disk.find(PROMPT)
        assert found is not None
        return setup.path / f"{found.names[1]}{BLOCK_SUFFIX}"

    def test_a_wrong_checksum(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with opened(tmp_path) as setup:
            setup.write()
            path = self.second(setup)
            content = bytearray(path.read_bytes())
            content[-40] ^= 1
            path.write_bytes(content)
            (line,) = self.damaged(setup, caplog)
            assert path.name in line and "checksum" in line
            setup.write()
            assert setup.read() == whole_of(PROMPT, 3), "it was written again"

    @pytest.mark.parametrize("content", [b"", b"GGUF" * 1000, b"x" * 10**6])
    def test_something_else(
        self, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        with opened(tmp_path) as setup:
            setup.write()
            self.second(setup).write_bytes(content)
            assert len(self.damaged(setup, caplog)) == 1

    def test_a_block_of_another_prompt(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with opened(tmp_path) as setup:
            setup.write()
            first, second = setup.blocks[0], self.second(setup)
            other = setup.blocks[1] if first == second else first
            second.write_bytes(other.read_bytes())
            (line,) = self.damaged(setup, caplog)
            assert "belongs to another key" in line

    def test_many_are_one_warning(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        others = [Prompt(tuple(range(n, n + BLOCK + 1))) for n in range(2, 6)]
        with opened(tmp_path) as setup:
            for other in others:
                setup.write(other)
            for path in setup.blocks:
                path.write_bytes(b"torn")
            with caplog.at_level(logging.WARNING):
                assert [setup.read(other) for other in others] == [None] * 4
            assert len(caplog.records) == 1
            assert setup.disk.use.failed_reads == 4

    def test_one_that_has_gone_is_no_failure(self, tmp_path: Path) -> None:
        with opened(tmp_path) as setup:
            setup.write()
            self.second(setup).unlink()
            assert setup.read() == whole_of(PROMPT, 1)
            assert setup.disk.use.failed_reads == 0

    def test_another_fingerprint_is_not_looked_at(self, tmp_path: Path) -> None:
        with opened(tmp_path) as setup:
            setup.write()
        for other in (
            replace(ORIGIN, cache="f8"),
            replace(ORIGIN, engine="llama.cpp 2"),
            replace(ORIGIN, model=replace(ORIGIN.model, digest="other")),
        ):
            with opened(tmp_path, origin=other) as setup:
                assert num_found(setup) == 0
                assert setup.disk.use.blocks == 0

    def test_what_was_left_unfinished_goes_when_it_is_opened(self, tmp_path: Path) -> None:
        (tmp_path / f"x{UNFINISHED_SUFFIX}").write_bytes(b"half")
        with opened(tmp_path):
            assert list(tmp_path.iterdir()) == []


class TestLimit:
    def test_the_later_blocks_of_what_was_not_used_for_longest_go_first(
        self, tmp_path: Path
    ) -> None:
        other = Prompt(tuple(range(7, 2 * BLOCK + 8)))
        with opened(tmp_path) as measured:
            measured.write()
            size = sum(path.stat().st_size for path in measured.blocks)
            for path in measured.blocks:
                path.unlink()
        with opened(tmp_path, limit=2 * size) as setup:
            setup.write()
            setup.write(other)
            third = Prompt(tuple(range(9, 2 * BLOCK + 10)))
            assert setup.read(PROMPT.part(0, BLOCK + 1)) is not None
            setup.write(third)
            assert num_found(setup, third) == 2 * BLOCK
            assert num_found(setup, other) == 2 * BLOCK
            assert num_found(setup) == BLOCK, "the block that was used is the one that stays"
            assert sum(path.stat().st_size for path in setup.blocks) <= 2 * size

    def test_one_prefix_takes_a_part_of_it_at_most(self, tmp_path: Path) -> None:
        with opened(tmp_path, limit=2 * 2 * BLOCK * CELL_BYTES) as setup:
            setup.write()
            assert len(setup.engine.asked) == 2


class TestFailures:
    def test_a_disk_that_is_full_rests(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = [0.0]
        is_full = [True]

        def write(path: Path, parts: tuple[State, ...]) -> None:
            if is_full[0]:
                raise OSError(28, "No space left on device")
            write_whole(path, parts)

        with opened(tmp_path, write=write, clock=lambda: now[0]) as setup:
            with caplog.at_level(logging.WARNING):
                setup.write()
                setup.write()
            assert len(setup.engine.asked) == 1
            assert setup.disk.use.failed_writes == 1
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "No space left" in caplog.text
            is_full[0], now[0] = False, PAUSE
            setup.write()
            assert num_found(setup) == 3 * BLOCK

    def test_a_mistake_of_ours_ends_one_prefix_alone(self, tmp_path: Path) -> None:
        mistakes = [ValueError("a mistake of ours")]

        def write(path: Path, parts: tuple[State, ...]) -> None:
            if mistakes:
                raise mistakes.pop()
            write_whole(path, parts)

        with opened(tmp_path, write=write) as setup:
            setup.write()
            assert setup.disk.use.failed_writes == 1
            setup.write()
            assert num_found(setup) == 3 * BLOCK

    def test_a_folder_that_went_away_is_a_miss(self, tmp_path: Path) -> None:
        with opened(tmp_path / "cache") as setup:
            (tmp_path / "cache").rmdir()
            setup.write()
            assert num_found(setup) == 0
            assert setup.disk.use.failed_writes == 1

    def test_a_disk_that_hangs_is_not_waited_for(self, tmp_path: Path) -> None:
        """Opening a pipe takes until somebody writes to it."""
        with opened(tmp_path) as setup:
            setup.write()
            (path, *_) = [setup.path / f"{name}{BLOCK_SUFFIX}" for name in self.names(setup)]
            path.unlink()
            os.mkfifo(path)
            assert setup.read(patience=0.01) is None
            assert setup.disk.use.failed_reads >= 1
            os.close(os.open(path, os.O_WRONLY))  # so that the thread goes on

    def names(self, setup: Setup) -> tuple[str, ...]:
        found = setup.disk.find(PROMPT)
        assert found is not None
        return found.names


def test_what_is_offered_while_it_writes_waits_and_is_bounded(tmp_path: Path) -> None:
    may_write, is_writing = threading.Event(), threading.Event()

    def write(path: Path, parts: tuple[State, ...]) -> None:
        is_writing.set()
        assert may_write.wait(HANGS)
        write_whole(path, parts)

    prompts = [Prompt(tuple(range(n, n + BLOCK + 1))) for n in range(1, 80)]
    with opened(tmp_path, write=write) as setup:
        setup.disk.offer(Left(prompts[0], SLOW))
        assert is_writing.wait(HANGS)
        for prompt in prompts[1:]:
            setup.disk.offer(Left(prompt, SLOW))
        may_write.set()
        setup.disk.finish(HANGS)
        assert [num_found(setup, one) for one in prompts[:3]] == [BLOCK] * 3
        assert num_found(setup, prompts[-1]) == 0


class TestCheckpoints:
    """Of a model that shares prefixes at these alone. The engine parks pieces of half a block."""

    STATE_BYTES = 1000
    ENDS = (BLOCK + 5, 2 * BLOCK, 2 * BLOCK + 100)
    """Where its checkpoints are: behind a block, at the end of one, and behind half of one."""

    class Engine(Engine):
        """Has checkpoints of any prompt at some lengths."""

        def __init__(self, ends: tuple[int, ...]) -> None:
            super().__init__()
            self.ends = ends

        def stored(self, prompt: Prompt, start: int = 0) -> StoredPrompt | None:
            lengths = [end for end in self.ends if end <= len(prompt)]
            if not lengths:
                return None
            prompt, half = prompt.part(0, lengths[-1]), BLOCK // 2
            starts = range(start, len(prompt), half)
            *pieces, last = (b"%d:%d;" % (n, sum(prompt.keys[n : n + half]) % 999) for n in starts)
            state = StoredState(len(prompt), last, b"s%d" % len(prompt))
            whole = tuple(Piece(half, piece) for piece in pieces)
            return StoredPrompt(prompt, whole, start, checkpoints=(state,))

        def hand_out(
            self,
            prompt: Prompt,
            reply: Callable[[StoredPrompt | None], None],
            *,
            start: int,
            can_wait: bool,
        ) -> Callable[[], None]:
            assert can_wait
            self.asked.append((start, len(prompt)))
            reply(self.stored(prompt, start))
            return lambda: None

    @contextmanager
    def opened(
        self,
        path: Path,
        *,
        limit: int = 10**6,
        write: Write = write_whole,
        clock: Callable[[], float] = lambda: 0.0,
        origin: Origin = ORIGIN,
    ) -> Iterator[Setup]:
        engine = self.Engine(self.ENDS)
        disk = DiskCache(
            CacheFolder(path, limit_bytes=limit, write=write),
            origin=origin,
            cell_bytes=CELL_BYTES,
            state_bytes=self.STATE_BYTES,
            hand_out=engine.hand_out,
            clock=clock,
        )
        try:
            yield Setup(disk, engine, path)
        finally:
            disk.close()

    def write(
        self, setup: Setup, prompt: Prompt = PROMPT, *, seconds: float = SLOW, num: int = 3
    ) -> None:
        ends = self.ENDS[:num]
        setup.disk.offer(Left(prompt.part(0, ends[-1]), seconds, ends))
        setup.disk.finish(HANGS)

    def read(self, setup: Setup, prompt: Prompt = PROMPT) -> StoredPrompt | None:
        found = setup.disk.find(prompt)
        assert found is not None and found.checkpoint is not None
        whole = prompt.part(0, found.num_tokens)
        answers: queue.Queue[StoredPrompt | None] = queue.Queue()
        wanted = ReadBlocks(whole, found.names, 0, HANGS, found.checkpoint.name)
        setup.disk.read(wanted, answers.put)
        return answers.get(timeout=HANGS)

    def expected(self, num_tokens: int, prompt: Prompt = PROMPT) -> StoredPrompt | None:
        return self.Engine((num_tokens,)).stored(prompt.part(0, num_tokens))

    def files(self, setup: Setup) -> list[Path]:
        paths = [path for path in setup.path.iterdir() if path.suffix == CHECKPOINT_SUFFIX]
        return sorted(paths, key=lambda path: path.name.split("-")[2])

    def test_the_longest_one_before_the_last_token_is_found_and_read(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as setup:
            assert setup.disk.find(PROMPT) is None
            self.write(setup)
            for length in (len(PROMPT), *(end + 1 for end in self.ENDS)):
                prompt = PROMPT.part(0, length)
                end = max(end for end in self.ENDS if end < length)
                assert num_found(setup, prompt) == end
                assert self.read(setup, prompt) == self.expected(end)
            assert num_found(setup, PROMPT.part(0, self.ENDS[0])) == 0
            use = setup.disk.use
            assert (use.blocks, use.written) == (2, 5)
            assert use.read == 3 + 3 + 2 + 2
            assert use.tokens == 2 * self.ENDS[2] + self.ENDS[1] + self.ENDS[0]
            assert use.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())

    def test_after_a_restart_and_for_another_agent(self, tmp_path: Path) -> None:
        now = [0.0]
        other = replace(ORIGIN, cache="f8")
        with (
            self.opened(tmp_path) as first,
            self.opened(tmp_path, clock=lambda: now[0]) as second,
            self.opened(tmp_path, origin=other) as foreign,
        ):
            self.write(first, num=1)
            assert num_found(second) == self.ENDS[0], "it came after the other had looked"
            self.write(first)
            assert num_found(second) == self.ENDS[0], "it does not look all the time"
            now[0] = LOOK_AGAIN
            assert self.read(second) == self.expected(self.ENDS[2])
            assert foreign.disk.find(PROMPT) is None
        with self.opened(tmp_path) as again:
            assert again.disk.use.blocks == 2
            assert self.read(again) == self.expected(self.ENDS[2])

    def test_what_is_there_is_not_written_again(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as setup:
            self.write(setup, num=2)
            setup.engine.asked.clear()
            self.write(setup)
            self.write(setup)
            assert setup.engine.asked == [(BLOCK, self.ENDS[2])]
            assert setup.disk.use.written == 5

    def test_one_that_adds_less_than_reading_takes_is_not_written(self, tmp_path: Path) -> None:
        """A file takes 2 ms at least. Each has a block before it, so computing must take 8 ms."""
        seconds = 0.05e-3 * self.ENDS[2]
        with self.opened(tmp_path) as setup:
            self.write(setup, seconds=seconds)
            assert setup.engine.asked == [(0, self.ENDS[1])], "133 take 6.7, 256 12.8, 100 more 5"
            assert num_found(setup) == self.ENDS[1]
            self.write(setup, Prompt(tuple(reversed(TOKENS))), seconds=0.001)
            assert len(setup.engine.asked) == 1, "the engine is not asked, either"

    def test_what_left_the_cache_before_is_missing_alone(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as setup:
            assert isinstance(setup.engine, self.Engine)
            setup.engine.ends = (self.ENDS[0], self.ENDS[2])
            self.write(setup)
            assert num_found(setup, PROMPT.part(0, self.ENDS[2])) == self.ENDS[0]
            assert num_found(setup) == self.ENDS[2]

    def test_others_do_not_find_it(self, tmp_path: Path) -> None:
        mine, theirs = Prompt(TOKENS, scope="mine"), Prompt(TOKENS, scope="theirs")
        with self.opened(tmp_path) as setup:
            self.write(setup, mine)
            assert num_found(setup, theirs) == num_found(setup) == 0
            assert num_found(setup, Prompt(TOKENS, scope="mine", adapter="a*1.0")) == 0
            prefix = self.read(setup, mine)
            assert prefix is not None and prefix.prompt.keys == mine.keys[: self.ENDS[2]]

    def test_without_one_of_its_blocks_it_is_not_found(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as setup:
            self.write(setup)
            found = setup.disk.find(PROMPT)
        assert found is not None
        (tmp_path / f"{found.names[1]}{BLOCK_SUFFIX}").unlink()
        with self.opened(tmp_path) as setup:
            assert num_found(setup) == self.ENDS[1], "that has its second block in itself"
            (tmp_path / f"{found.names[0]}{BLOCK_SUFFIX}").unlink()
            assert self.read(setup) is None
            self.write(setup)
            assert self.read(setup) == self.expected(self.ENDS[2]), "until they are written again"

    def test_a_damaged_one_is_computed_and_the_one_before_is_found(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with self.opened(tmp_path) as setup:
            self.write(setup)
            (path,) = (path for path in self.files(setup) if "-100-" in path.name)
            content = bytearray(path.read_bytes())
            content[-40] ^= 1
            path.write_bytes(content)
            assert self.read(setup) is None
            assert path.name in caplog.text and "checksum" in caplog.text
            assert setup.disk.use.failed_reads == 1
            assert self.read(setup) == self.expected(self.ENDS[1])

    def test_files_that_say_something_else_are_ignored(self, tmp_path: Path) -> None:
        """A block in a checkpoint's place, another's checkpoint, and names that are none."""
        with self.opened(tmp_path) as setup:
            self.write(setup)
            paths = self.files(setup)
            (long,) = (path for path in paths if "-100-" in path.name)
            block = StoredPrompt(PROMPT.part(2 * BLOCK, self.ENDS[2]), (Piece(100, b"x"),))
            long.write_bytes(b"".join(pack(long.stem, ORIGIN, block)))
            assert self.read(setup) is None
            (second,) = (path for path in paths if f"-{BLOCK}-" in path.name)
            second.write_bytes(paths[-1].read_bytes())
            assert self.read(setup) is None
            tag = long.name.split("-")[0]
            for name in (f"{tag}-a-b-c", f"{tag}-a-99999-c", f"{tag}-1-2-3-4"):
                (tmp_path / f"{name}{CHECKPOINT_SUFFIX}").write_bytes(b"")
        with self.opened(tmp_path) as setup:
            self.write(setup)
            assert self.read(setup) is None, "what was written over is noticed when it is read"
            self.write(setup)
            assert self.read(setup) == self.expected(self.ENDS[2])

    def test_a_kill_before_the_checkpoint_leaves_blocks_that_are_not_found(
        self, tmp_path: Path
    ) -> None:
        def write(path: Path, parts: tuple[State, ...]) -> None:
            if path.suffix == CHECKPOINT_SUFFIX:
                raise OSError(28, "No space left on device")
            write_whole(path, parts)

        with self.opened(tmp_path, write=write) as setup:
            self.write(setup)
            assert (setup.disk.use.blocks, setup.disk.use.failed_writes) == (1, 1)
            assert setup.disk.find(PROMPT) is None
            assert setup.engine.asked == [(0, self.ENDS[0])], "the disk rests"

    def test_all_files_stay_within_the_limit(self, tmp_path: Path) -> None:
        limit = 12_000
        with self.opened(tmp_path, limit=limit) as setup:
            for number in range(1, 30):
                prompt = Prompt(tuple(range(number, number + self.ENDS[2] + 1)))
                self.write(setup, prompt)
                assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
                assert self.read(setup, prompt) == self.expected(self.ENDS[2], prompt)
        with self.opened(tmp_path / "small", limit=2 * self.STATE_BYTES) as setup:
            self.write(setup)
            assert setup.engine.asked == [], "one prefix takes half of it at most"

    def test_pieces_that_are_no_parts_of_blocks_are_a_mistake(self, tmp_path: Path) -> None:
        class Odd(self.Engine):  # type: ignore[name-defined,misc]
            def stored(self, prompt: Prompt, start: int = 0) -> StoredPrompt | None:
                state = StoredState(len(prompt), b"t", b"s")
                return StoredPrompt(prompt, (Piece(BLOCK + 1, b"x"),), checkpoints=(state,))

        with self.opened(tmp_path) as setup:
            odd = Odd(self.ENDS)
            setup.disk._hand_out = odd.hand_out
            self.write(setup)
            assert setup.disk.use.failed_writes == 1
            assert setup.disk.find(PROMPT) is None


def test_keys_of_what_is_on_disk_are_known_until_it_goes(tmp_path: Path) -> None:
    marks = ((10, 1), (BLOCK + 5, 2), (3 * BLOCK - 1, 3), (3 * BLOCK + 5, 4), (4 * BLOCK, 5))
    with opened(tmp_path) as setup:
        setup.disk.offer(Left(PROMPT, SLOW, marks=marks))
        setup.disk.finish(HANGS)
        known = setup.disk.known
        assert known.without((1, 2, 3, 4, 5)) == (1, 5), "too short, and too long"
        assert known.num_bytes == sum(path.stat().st_size for path in setup.blocks)
        assert setup.disk.use.cells == 3 * BLOCK
        names = [*setup.disk._names.of(PROMPT)]
        setup.path.joinpath(f"{names[1]}{BLOCK_SUFFIX}").unlink()
        assert setup.read() is not None, "its first block"
        assert known.take_gone(lambda key: False) == (3,)
        assert known.without((2, 4)) == ()


def test_what_was_not_worth_it_is_not_known(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        setup.disk.offer(Left(PROMPT, 0.0, marks=((BLOCK, 1),)))
        setup.disk.finish(HANGS)
        assert setup.disk.known.without((1,)) == (1,)


def test_a_key_is_known_again_after_a_restart_when_its_prompt_comes(tmp_path: Path) -> None:
    with opened(tmp_path) as setup:
        setup.write()
        home = setup.disk.home
    with opened(tmp_path) as setup:
        assert setup.disk.home == home
        setup.disk.offer(Left(PROMPT, 0.0, marks=((BLOCK, 1),)))
        setup.disk.finish(HANGS)
        assert setup.disk.known.without((1,)) == ()
        assert setup.engine.asked == []
    with opened(tmp_path, origin=replace(ORIGIN, engine="another")) as setup:
        assert setup.disk.home != home


def test_a_prefix_is_read_for_another_agent_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "PART_BYTES", BLOCK * CELL_BYTES)
    with opened(tmp_path) as setup:
        setup.write()
        beginning = PROMPT.part(0, 2 * BLOCK)
        found = setup.disk.find(beginning, spares_last=False)
        assert found is not None and found.num_tokens == 2 * BLOCK
        prefix = setup.disk.read_parts(beginning, found, HANGS)
        assert prefix is not None and prefix.start == 0
        assert prefix.prompt.keys == beginning.keys
        assert prefix.pieces == (*states(PROMPT, 0), *states(PROMPT, BLOCK))
        setup.blocks[0].unlink()
        setup.blocks[0].unlink()
        left = setup.disk.read_parts(beginning, found, HANGS)
        assert left is None or len(left.prompt) == BLOCK, "as far as it is there"
