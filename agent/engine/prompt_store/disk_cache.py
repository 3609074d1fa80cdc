"""The disk tier of the prefix cache: what sequences leave goes to disk by itself, and comes back.

It is written soon after a sequence has left it, block by block (`blocks`), where reading will take
much less time than computing it took, and only what is not there yet. So what host memory evicts is
on disk already, and a killed process loses little. Blocks are read for a sequence that begins with
more than the cache has. Reading and writing have a thread each; the engine's thread only hands
states over, and takes them.

What is wrong with a file is counted and logged, and its block is computed: nobody else notices.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, assert_never

from ....shared.reports.statistics import DiskUse
from ..prompt import Prompt
from .blocks import BLOCK, WORTH, BlockNames, Left, OnDisk, ReadBlocks, ReadingPrice
from .cache_folder import BLOCK_SUFFIX, CacheFile, CacheFolder, FullError
from .stored_prompt import MAX_DESCRIPTION, Origin, Piece, StoredPrompt, UnusableFile, pack, unpack

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Prefixes that wait to be written. When more come, they are not written."""

LARGEST = 1 / 2
"""The part of the limit that one prefix may take: its further blocks are not written."""

PAUSE = 60.0
"""Seconds without writes after one failed: the disk may be full, or the folder of prompts."""

CLOSING = 5.0
"""Seconds to wait for a thread that reads or writes."""

MAX_BAD = 2**12
"""Names of damaged blocks that are remembered, until they are written again."""

Reply = Callable[[StoredPrompt | None], None]


class HandOut(Protocol):
    """See `Worker.hand_out`."""

    def __call__(
        self, prompt: Prompt, reply: Reply, *, start: int, can_wait: bool
    ) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class _HandedOut:
    prefix: StoredPrompt | None


@dataclass(frozen=True, slots=True)
class _Finish:
    done: threading.Event


@dataclass(frozen=True, slots=True)
class _Close:
    pass


@dataclass(slots=True)
class _Writing:
    """`missing` are the numbers of the blocks that are still to be written, in their order."""

    prompt: Prompt
    names: list[str]
    missing: deque[int]


@dataclass(slots=True, eq=False)
class _Job:
    """A reading that is answered once, by whoever comes first."""

    wanted: ReadBlocks
    reply: Reply
    timer: threading.Timer | None = None
    is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, prefix: StoredPrompt | None) -> None:
        """This is the answer, unless there was one."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self.reply(prefix)


class DiskCache:
    """Blocks in `folder` that `origin` computed; a token's state has about `cell_bytes`.

    `hand_out` reads states from the engine. Opening it looks at the folder. Raises `OSError`.
    """

    def __init__(
        self,
        folder: CacheFolder,
        *,
        origin: Origin,
        cell_bytes: int,
        hand_out: HandOut,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._origin = origin
        self._block_bytes = BLOCK * cell_bytes
        self._hand_out = hand_out
        self._clock = clock
        self._names = BlockNames(origin)
        self._price = ReadingPrice()
        self._sizes: dict[str, int] = {}
        """Of the blocks that are known to be there."""
        self._bad: dict[str, None] = {}
        self._num_read = self._num_tokens = self._num_written = 0
        self._num_failed_reads = self._num_failed_writes = 0
        self._has_warned = False
        self._jobs: SimpleQueue[_Job | _Close] = SimpleQueue()
        self._news: SimpleQueue[Left | _HandedOut | _Finish | _Close] = SimpleQueue()
        self._waiting: deque[Left] = deque()
        self._writing: _Writing | None = None
        self._rests_until = float("-inf")
        self._finishing: list[threading.Event] = []
        self._look(folder)
        self._reader = threading.Thread(target=self._read_all, name="disk-read", daemon=True)
        self._writer = threading.Thread(target=self._write_all, name="disk-write", daemon=True)
        self._reader.start()
        self._writer.start()

    # ---- from any thread

    @property
    def use(self) -> DiskUse:
        """What is on disk of this model, and what came of it since the engine started."""
        sizes = self._sizes
        return DiskUse(
            blocks=len(sizes),
            bytes=sum(list(sizes.values())),
            read=self._num_read,
            tokens=self._num_tokens,
            written=self._num_written,
            failed_reads=self._num_failed_reads,
            failed_writes=self._num_failed_writes,
        )

    def find(self, prompt: Prompt) -> OnDisk | None:
        """The longest beginning of `prompt`, less its last token, that is on disk. Blocks."""
        most = (len(prompt) - 1) // BLOCK
        there = tuple(takewhile(self._has, islice(self._names.of(prompt), most)))
        if not there:
            return None
        self._price.doubt()
        return OnDisk(there, self._price.seconds(self._block_bytes))

    def read(self, wanted: ReadBlocks, reply: Reply) -> None:
        """Read what is `wanted`; never blocks.

        `reply` gets as much of it as could be read, on another thread.
        """
        job = _Job(wanted, reply)
        job.timer = threading.Timer(wanted.patience, self._late, (job,))
        job.timer.daemon = True
        job.timer.start()
        self._jobs.put(job)

    def offer(self, left: Left) -> None:
        """Write what pays of a prefix that is in the cache; never blocks."""
        if self._news.qsize() + len(self._waiting) < MAX_WAITING:
            self._news.put(left)

    def finish(self, seconds: float) -> None:
        """Block until all that was offered is written, at most so long."""
        done = threading.Event()
        self._news.put(_Finish(done))
        done.wait(seconds)

    def close(self) -> None:
        """Begin nothing any more. Blocks until the block that is being written is whole.

        But not for ever: a disk may hang.
        """
        for queue in (self._jobs, self._news):
            queue.put(_Close())
        for thread in (self._reader, self._writer):
            thread.join(CLOSING)

    # ---- the folder

    def _look(self, folder: CacheFolder) -> None:
        """See what is there, from names alone: what a file says is checked when it is read."""
        num_left = folder.collect_leftovers()
        files = [file for file in folder.files() if file.name.endswith(BLOCK_SUFFIX)]
        self._saw(files)
        num_others = len(files) - len(self._sizes)
        logger.info(
            "the disk cache has %d blocks of this model, and %d of others; %d unfinished files "
            "were removed",
            *(len(self._sizes), num_others, num_left),
        )

    def _saw(self, files: Iterable[CacheFile]) -> None:
        start, end = f"{self._names.tag}-", BLOCK_SUFFIX
        self._sizes = {
            file.name.removesuffix(end): file.size
            for file in files
            if file.name.startswith(start) and file.name.endswith(end)
        }

    def _path(self, name: str) -> Path:
        return self._folder.path / f"{name}{BLOCK_SUFFIX}"

    def _has(self, name: str) -> bool:
        """Another agent may have written it since the last look."""
        if name in self._sizes:
            return True
        if name in self._bad:
            return False
        try:
            self._sizes[name] = self._path(name).stat().st_size
        except OSError:
            return False
        return True

    def _touch(self, names: Iterable[str]) -> None:
        """They were used. Later blocks, without which the others are of use, go first."""
        now = time.time_ns()
        for place, name in enumerate(names):
            with suppress(OSError):  # it has gone, or is another user's
                os.utime(self._path(name), ns=(now, now - 1000 * place))

    def _warn(self, name: str, reason: str) -> None:
        """Once at length: where a disk goes bad, thousands may follow."""
        level = logging.INFO if self._has_warned else logging.WARNING
        self._has_warned = True
        logger.log(level, "disk cache file %s%s %s", name, BLOCK_SUFFIX, reason)

    # ---- on the thread that reads

    def _late(self, job: _Job) -> None:
        if not job.is_over:
            self._num_failed_reads += 1
            logger.warning("the disk cache is slow: a prefix is computed instead")
            job.answer(None)

    def _read_all(self) -> None:
        while not isinstance(job := self._jobs.get(), _Close):
            self._read(job)

    def _read(self, job: _Job) -> None:
        prefix = None
        try:
            prefix = self._prefix(job)
        except Exception:  # the boundary of a reading: its prefix is computed
            self._num_failed_reads += 1
            logger.exception("a prefix could not be read from disk")
        if prefix is not None and not job.is_over:
            num_tokens = len(prefix.prompt) - prefix.start
            self._num_tokens += num_tokens
            self._num_read += num_tokens // BLOCK
        job.answer(prefix)

    def _prefix(self, job: _Job) -> StoredPrompt | None:
        wanted, pieces = job.wanted, list[Piece]()
        end = wanted.start
        while end < len(wanted.prompt) and not job.is_over:
            tokens = wanted.prompt.token_ids(end, end + BLOCK)
            block = self._block(wanted.names[end // BLOCK], tokens)
            if block is None:
                break
            pieces += block.pieces
            end += BLOCK
        if not pieces:
            return None
        self._touch(wanted.names)
        return StoredPrompt(wanted.prompt.part(0, end), tuple(pieces), wanted.start)

    def _block(self, name: str, tokens: tuple[int, ...]) -> StoredPrompt | None:
        began = self._clock()
        try:
            with self._path(name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > 2 * self._block_bytes + MAX_DESCRIPTION:
                    raise UnusableFile(f"takes {size} bytes, which no block does")
                block = unpack(file, size, key=name, origin=self._origin)
        except FileNotFoundError:
            self._sizes.pop(name, None)
            return None
        except UnusableFile as error:
            self._is_bad(name, f"{error}; it is ignored")
            return None
        except OSError as error:
            self._is_bad(name, f"cannot be read: {error.strerror}")
            return None
        if block.prompt.tokens != tokens:
            self._is_bad(name, "holds another prompt; it is ignored")
            return None
        self._price.observe(size, self._clock() - began)
        return block

    def _is_bad(self, name: str, reason: str) -> None:
        self._num_failed_reads += 1
        self._sizes.pop(name, None)
        if len(self._bad) >= MAX_BAD:
            self._bad.clear()
        self._bad[name] = None
        self._warn(name, reason)

    # ---- on the thread that writes

    def _write_all(self) -> None:
        while not isinstance(news := self._news.get(), _Close):
            try:
                self._heard(news)
            except Exception:  # the boundary of a prefix: it is not written
                self._num_failed_writes += 1
                self._writing = None
                logger.exception("a prefix could not be written to disk")
            self._go_on()

    def _heard(self, news: Left | _HandedOut | _Finish) -> None:
        match news:
            case Left():
                self._waiting.append(news)
            case _HandedOut(prefix):
                self._handed_out(prefix)
            case _Finish(done):
                self._finishing.append(done)
            case _:
                assert_never(news)

    def _go_on(self) -> None:
        """Begin with the next prefix that is worth it, where none is being written."""
        while self._writing is None and self._waiting:
            self._begin(self._waiting.popleft())
        if self._writing is None:
            for done in self._finishing:
                done.set()
            self._finishing.clear()

    def _begin(self, left: Left) -> None:
        most = int(LARGEST * self._folder.limit_bytes) // max(1, self._block_bytes)
        names = [*islice(self._names.of(left.prompt), most)]
        missing = deque(place for place, name in enumerate(names) if not self._has(name))
        if len(missing) < len(names):
            self._touch(names)
        if not missing or self._clock() < self._rests_until:
            return
        computing = left.seconds * len(missing) * BLOCK / len(left.prompt)
        if computing < WORTH * len(missing) * self._price.seconds(self._block_bytes):
            return
        self._writing = _Writing(left.prompt, names, missing)
        self._ask(self._writing)

    def _ask(self, writing: _Writing) -> None:
        start = writing.missing[0] * BLOCK
        self._hand_out(
            writing.prompt.part(0, start + BLOCK),
            lambda prefix: self._news.put(_HandedOut(prefix)),
            start=start,
            can_wait=True,
        )

    def _handed_out(self, prefix: StoredPrompt | None) -> None:
        writing = self._writing
        if writing is None:
            return
        place = writing.missing.popleft()
        start, end = place * BLOCK, (place + 1) * BLOCK
        has_gone = prefix is None or (prefix.start, len(prefix.prompt)) != (start, end)
        if prefix is None or has_gone:
            self._written(writing)
            return
        block = StoredPrompt(writing.prompt.part(start, end), prefix.pieces)
        if not self._save(writing.names[place], block):
            self._writing = None
        elif writing.missing:
            self._ask(writing)
        else:
            self._written(writing)

    def _written(self, writing: _Writing) -> None:
        self._touch(takewhile(self._sizes.__contains__, writing.names))
        self._writing = None

    def _save(self, name: str, block: StoredPrompt) -> bool:
        """Whether it is on disk now."""
        parts = pack(name, self._origin, block)
        try:
            files = self._folder.add(self._path(name), parts)
        except FullError:
            self._rests_until = self._clock() + PAUSE
            return False
        except OSError as error:
            self._num_failed_writes += 1
            self._rests_until = self._clock() + PAUSE
            self._warn(name, f"cannot be written: {error.strerror}")
            return False
        if files is not None:
            self._saw(files)
        self._sizes[name] = sum(map(len, parts))
        self._bad.pop(name, None)
        self._num_written += 1
        return True
