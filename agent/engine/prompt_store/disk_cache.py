"""The disk tier of the prefix cache: prefixes are written to disk and read back.

A prefix is written soon after a sequence has left it, block by block (`blocks`), if reading will
take much less time than computing took. Blocks on disk are not written again. So a prefix that
host memory evicts is on disk already, and a killed process loses little. Blocks are read for a
sequence whose prompt has a longer prefix on disk than in memory. Reading and writing have one
thread each; the engine's thread only hands states over.

If sequences can begin only at checkpoints, the last few checkpoints of a left sequence are
written, the shortest first. A checkpoint is written only if it saves more computing time than its
reading takes. The checkpoint's blocks are written before it, so that each checkpoint on disk can
be used. It is read as a whole, its state last.

A damaged file is counted and logged, and its block is computed; nothing else is affected.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice, takewhile
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, assert_never

from ....shared.reports.statistics import DiskUse
from ..capacity import BLOCK
from ..prompt import Prompt
from .blocks import (
    PART_BYTES,
    WORTH,
    BlockNames,
    CheckpointOnDisk,
    Left,
    OnDisk,
    ReadBlocks,
    ReadingPrice,
    is_checkpoint,
    place_of,
    whole,
)
from .cache_folder import BLOCK_SUFFIX, CHECKPOINT_SUFFIX, CacheFile, CacheFolder, FullError
from .known_files import KnownFiles
from .stored_prompt import MAX_DESCRIPTION, Origin, Piece, StoredPrompt, UnusableFile, pack, unpack

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Maximum prefixes waiting to be written; further prefixes are not written."""

LARGEST = 1 / 2
"""Share of the limit that one prefix may take; further blocks of the prefix are not written."""

PAUSE = 60.0
"""Seconds without writes after a failed write: the disk or the folder may be full."""

LOOK_AGAIN = 5.0
"""Seconds until the folder is scanned again for checkpoints of other agents."""

CLOSING = 5.0
"""Seconds to wait for a thread that reads or writes."""

MAX_BAD = 2**12
"""Maximum names of damaged blocks remembered, until they are written again."""

_SUFFIXES = (BLOCK_SUFFIX, CHECKPOINT_SUFFIX)

Reply = Callable[[StoredPrompt | None], None]


class HandOut(Protocol):
    """Export the longest cached prefix of `prompt`, from position `start` on, to `reply`."""

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
    """A prefix being written, whose blocks have these `names`.

    `ends` has the ends of the parts still to write, in order: blocks, or checkpoints with the
    missing blocks before them. The next part is read from position `start` on.
    """

    prompt: Prompt
    names: list[str]
    ends: deque[int]
    start: int = 0


@dataclass(slots=True, eq=False)
class _Job:
    """A read that gets one answer: the first one."""

    wanted: ReadBlocks
    reply: Reply
    timer: threading.Timer | None = None
    is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, prefix: StoredPrompt | None) -> None:
        """Pass on the answer, unless an earlier answer was passed on."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self.reply(prefix)


class DiskCache:
    """Blocks in `folder` computed by `origin`; a token's state has about `cell_bytes`.

    If sequences can begin only at checkpoints, each checkpoint has `state_bytes` in addition.
    `hand_out` exports states from the engine. The constructor scans the folder. Raises `OSError`.
    """

    def __init__(
        self,
        folder: CacheFolder,
        *,
        origin: Origin,
        cell_bytes: int,
        state_bytes: int = 0,
        hand_out: HandOut,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._origin = origin
        self._block_bytes = BLOCK * cell_bytes
        self._state_bytes = state_bytes
        self._hand_out = hand_out
        self._clock = clock
        self._names = BlockNames(origin)
        self._price = ReadingPrice()
        self.known = KnownFiles()
        """The blocks and checkpoints of this model."""
        self._tails: dict[str, frozenset[int]] = {}
        """For each block, the ends of known checkpoints after it, as numbers of tokens after the
        block.
        """
        self._tails_lock = threading.Lock()
        self._looks_again_at = float("-inf")
        self._bad: dict[str, None] = {}
        self._num_read = self._num_tokens = self._num_written = 0
        self._num_failed_reads = self._num_failed_writes = 0
        self._has_warned = False
        self._jobs: SimpleQueue[_Job | _Close] = SimpleQueue()
        self._news: SimpleQueue[Left | _HandedOut | _Finish | _Close] = SimpleQueue()
        self._waiting: deque[Left] = deque()
        self._left: Left | None = None
        """The prefix being written, or a prefix that proved not worth writing."""
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
    def home(self) -> str:
        """An identifier that is equal for disk caches with the same folder and origin."""
        data = f"{self._origin.digest} {self._folder.path}".encode("utf-8", "surrogateescape")
        return blake2b(data, digest_size=16).hexdigest()

    @property
    def use(self) -> DiskUse:
        """The usage of this model's disk cache, and counts since the engine started."""
        return DiskUse(
            blocks=self.known.num_blocks,
            bytes=self.known.num_bytes,
            cells=self.known.num_blocks * BLOCK,
            keys=self.known.num_keys,
            read=self._num_read,
            tokens=self._num_tokens,
            written=self._num_written,
            failed_reads=self._num_failed_reads,
            failed_writes=self._num_failed_writes,
        )

    def find(self, prompt: Prompt, *, spares_last: bool = True) -> OnDisk | None:
        """Return the longest prefix of `prompt` on disk, without its last token. Blocks.

        If `spares_last` is false, the prefix may be the whole prompt.
        """
        most = len(prompt) - spares_last
        there = tuple(takewhile(self._has, islice(self._names.of(prompt), most // BLOCK)))
        if self._state_bytes:
            return self._find_checkpoint(prompt, there, most)
        if not there:
            return None
        self._price.doubt()
        return OnDisk(there, self._price.seconds(self._block_bytes))

    def read_parts(self, prompt: Prompt, found: OnDisk, patience: float) -> StoredPrompt | None:
        """Return the `found` prefix of `prompt`, or as much as could be read. Blocks.

        The prefix is read in parts of up to `PART_BYTES`, and other reads may come between them. A
        checkpoint is read in one part. Each part has `patience` seconds.

        `reply` gets the blocks that could be read, on another thread.
        """
        length, prefix = found.num_tokens, None
        checkpoint = None if found.checkpoint is None else found.checkpoint.name
        most = max(BLOCK, whole(PART_BYTES * BLOCK // self._block_bytes))
        end, pieces = 0, list[Piece]()
        while end < length:
            stop = length if checkpoint is not None else min(length, end + most)
            names = found.names[: stop // BLOCK]
            wanted = ReadBlocks(prompt.part(0, stop), names, end, patience, checkpoint)
            answer: SimpleQueue[StoredPrompt | None] = SimpleQueue()
            self.read(wanted, answer.put)
            part = answer.get()
            if part is None:
                break
            pieces += part.pieces
            end = len(part.prompt)
            prefix = StoredPrompt(part.prompt, tuple(pieces), checkpoints=part.checkpoints)
            if end < stop:
                break
        return prefix

    def read(self, wanted: ReadBlocks, reply: Reply) -> None:
        """Read the `wanted` blocks without blocking.

        `reply` gets as many as could be read, on another thread.
        """
        job = _Job(wanted, reply)
        job.timer = threading.Timer(wanted.patience, self._late, (job,))
        job.timer.daemon = True
        job.timer.start()
        self._jobs.put(job)

    def offer(self, left: Left) -> None:
        """Write those blocks of a cached prefix that are worth writing, without blocking."""
        if self._news.qsize() + len(self._waiting) < MAX_WAITING:
            self._news.put(left)

    def finish(self, seconds: float) -> None:
        """Block until all offered prefixes are written, for at most `seconds`."""
        done = threading.Event()
        self._news.put(_Finish(done))
        done.wait(seconds)

    def close(self) -> None:
        """Start no new work; block until the current block is written, or `CLOSING` has passed."""
        for queue in (self._jobs, self._news):
            queue.put(_Close())
        for thread in (self._reader, self._writer):
            thread.join(CLOSING)

    # ---- checkpoints, from any thread

    def _find_checkpoint(self, prompt: Prompt, there: tuple[str, ...], most: int) -> OnDisk | None:
        """Return the longest checkpoint of at most `most` tokens whose blocks are `there`."""
        found = self._deepest(prompt, there, most)
        num_blocks = 0 if found is None else whole(found.length - 1) // BLOCK
        if len(there) > num_blocks and self._looked_again():
            found = self._deepest(prompt, there, most)
        if found is None:
            return None
        self._price.doubt()
        names = there[: whole(found.length - 1) // BLOCK]
        return OnDisk(names, self._price.seconds(self._block_bytes), checkpoint=found)

    def _deepest(self, prompt: Prompt, there: Sequence[str], most: int) -> CheckpointOnDisk | None:
        """Return the longest checkpoint of at most `most` tokens whose blocks are `there`."""
        for place in range(min(len(there), most // BLOCK), -1, -1):
            start = place * BLOCK
            after = there[place - 1] if place else self._names.start
            for tail in sorted(self._tails.get(after, ()), reverse=True):
                if start + tail > most:
                    continue
                name = self._names.checkpoint(after, prompt, start, start + tail)
                if self._has(name):
                    return CheckpointOnDisk(name, start + tail, self._checkpoint_seconds(tail))
        return None

    def _checkpoint_seconds(self, tail: int) -> float:
        """Return the seconds to read a checkpoint `tail` tokens after its last whole block."""
        return self._price.seconds(self._state_bytes + tail * self._block_bytes // BLOCK)

    def _looked_again(self) -> bool:
        """Scan for checkpoints of other agents, unless a scan was recent. Returns whether it
        scanned.
        """
        now = self._clock()
        if now < self._looks_again_at:
            return False
        self._looks_again_at = now + LOOK_AGAIN
        with suppress(OSError):  # the folder has gone: so have the files
            for file in self._folder.names(CHECKPOINT_SUFFIX):
                self._learn(file.removesuffix(CHECKPOINT_SUFFIX), self._tails)
        return True

    def _learn(self, name: str, tails: dict[str, frozenset[int]]) -> None:
        """Record where the checkpoint `name` ends, if it belongs to this model."""
        place = place_of(name)
        if place is not None and name.startswith(f"{self._names.tag}-"):
            after, tail = place
            with self._tails_lock:
                tails[after] = tails.get(after, frozenset()) | {tail}

    # ---- the folder

    def _look(self, folder: CacheFolder) -> None:
        """Scan the folder by names alone: the content of a file is checked when it is read."""
        num_left = folder.collect_leftovers()
        files = [file for file in folder.files() if file.name.endswith(_SUFFIXES)]
        self._saw(files)
        num_others = len(files) - len(self.known)
        logger.info(
            "the disk cache has %d files of this model and %d of others; %d unfinished files "
            "were removed",
            *(len(self.known), num_others, num_left),
        )

    def _saw(self, files: Iterable[CacheFile]) -> None:
        start = f"{self._names.tag}-"
        sizes = {
            file.name.rpartition(".")[0]: file.size
            for file in files
            if file.name.startswith(start) and file.name.endswith(_SUFFIXES)
        }
        self.known.replace(sizes)
        tails: dict[str, frozenset[int]] = {}
        for name in sizes:
            self._learn(name, tails)
        with self._tails_lock:
            self._tails = tails

    def _path(self, name: str) -> Path:
        return self._folder.path / _file(name)

    def _has(self, name: str) -> bool:
        """Return whether the file exists; another agent may have written it since the last scan."""
        if name in self.known:
            return True
        if name in self._bad:
            return False
        try:
            self.known.add(name, self._path(name).stat().st_size)
        except OSError:
            return False
        return True

    def _touch(self, names: Iterable[str]) -> None:
        """Mark files as used, later blocks as older: they are useless without earlier blocks."""
        now = time.time_ns()
        for place, name in enumerate(names):
            with suppress(OSError):  # it has gone, or is another user's
                os.utime(self._path(name), ns=(now, now - 1000 * place))

    def _warn(self, name: str, reason: str) -> None:
        """Log a problem, the first time as a warning: if a disk fails, thousands may follow."""
        level = logging.INFO if self._has_warned else logging.WARNING
        self._has_warned = True
        logger.log(level, "disk cache file %s %s", _file(name), reason)

    # ---- on the thread that reads

    def _late(self, job: _Job) -> None:
        if not job.is_over:
            self._num_failed_reads += 1
            logger.warning("the disk cache is slow, so a prefix is computed instead")
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
            self._num_read += ceil(num_tokens / BLOCK)
        job.answer(prefix)

    def _prefix(self, job: _Job) -> StoredPrompt | None:
        wanted, pieces = job.wanted, list[Piece]()
        end = wanted.start
        while end < BLOCK * len(wanted.names) and not job.is_over:
            tokens = wanted.prompt.token_ids(end, end + BLOCK)
            block = self._block(wanted.names[end // BLOCK], tokens)
            if block is None:
                break
            pieces += block.pieces
            end += BLOCK
        if wanted.checkpoint is not None:
            return self._prefix_to(wanted, wanted.checkpoint, pieces, end)
        if not pieces:
            return None
        self._touch(wanted.names)
        return StoredPrompt(wanted.prompt.part(0, end), tuple(pieces), wanted.start)

    def _prefix_to(
        self, wanted: ReadBlocks, checkpoint: str, pieces: list[Piece], end: int
    ) -> StoredPrompt | None:
        """Return everything up to `checkpoint`, if `pieces` cover all its blocks up to `end`."""
        length = len(wanted.prompt)
        if end < whole(length - 1):
            return None
        last = self._block(checkpoint, wanted.prompt.token_ids(end, length))
        if last is None:
            return None
        self._touch((*wanted.names, checkpoint))
        states = (replace(last.checkpoints[0], length=length),)
        return StoredPrompt(wanted.prompt, (*pieces, *last.pieces), checkpoints=states)

    def _block(self, name: str, tokens: tuple[int, ...]) -> StoredPrompt | None:
        """Read the file of a block, or of a checkpoint, with these `tokens`.

        Returns `None` if the file is unusable.
        """
        most = 2 * (self._block_bytes + self._state_bytes) + MAX_DESCRIPTION
        began = self._clock()
        try:
            with self._path(name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    raise UnusableFile(f"has {size} bytes, more than any block")
                block = unpack(file, size, key=name, origin=self._origin)
        except FileNotFoundError:
            self.known.drop(name)
            return None
        except UnusableFile as error:
            self._is_bad(name, f"{error}; it is ignored")
            return None
        except OSError as error:
            self._is_bad(name, f"cannot be read: {error.strerror}")
            return None
        if block.prompt.tokens != tokens:
            self._is_bad(name, "contains another prompt; it is ignored")
            return None
        ends = (len(tokens),) if is_checkpoint(name) else ()
        if tuple(one.length for one in block.checkpoints) != ends:
            self._is_bad(name, "contains other checkpoints; it is ignored")
            return None
        self._price.observe(size, self._clock() - began)
        return block

    def _is_bad(self, name: str, reason: str) -> None:
        self._num_failed_reads += 1
        self.known.drop(name)
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
                logger.exception("a prompt could not be written to the disk cache")
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
        """Begin to write the next prefix that is worth writing, if no prefix is being written."""
        while self._writing is None:
            if self._left is not None:
                self._note_keys(self._left)
            self._left = self._waiting.popleft() if self._waiting else None
            if self._left is None:
                break
            self._begin(self._left)
        if self._writing is None:
            for done in self._finishing:
                done.set()
            self._finishing.clear()

    def _begin(self, left: Left) -> None:
        names = [*self._names.of(left.prompt)]
        find = self._checkpoints_worth_it if self._state_bytes else self._blocks_worth_it
        ends = find(left, names)
        if ends and self._clock() >= self._rests_until:
            self._writing = _Writing(left.prompt, names, ends)
            self._ask(self._writing)

    def _blocks_worth_it(self, left: Left, names: list[str]) -> deque[int]:
        """Return the ends of missing blocks if the blocks are worth writing; otherwise no ends."""
        most = int(LARGEST * self._folder.limit_bytes) // max(1, self._block_bytes)
        del names[most:]
        missing = [place for place, name in enumerate(names) if not self._has(name)]
        if len(missing) < len(names):
            self._touch(names)
        computing = left.seconds * len(missing) * BLOCK / len(left.prompt)
        if computing < WORTH * len(missing) * self._price.seconds(self._block_bytes):
            return deque()
        return deque((place + 1) * BLOCK for place in missing)

    def _checkpoints_worth_it(self, left: Left, names: list[str]) -> deque[int]:
        """Return the checkpoints worth writing, each compared with the checkpoint before it on
        disk.
        """
        there = [*takewhile(self._has, names)]
        most = LARGEST * self._folder.limit_bytes - self._state_bytes
        lengths = deque[int]()
        for length in left.checkpoints:
            known = self._deepest(left.prompt, there, length)
            before = max((*lengths, 0 if known is None else known.length))
            if known is not None and known.length == length:
                self._touch((*there[: whole(length - 1) // BLOCK], known.name))
            elif length * self._block_bytes <= most * BLOCK and self._pays(left, before, length):
                lengths.append(length)
        return lengths

    def _pays(self, left: Left, before: int, length: int) -> bool:
        """Return whether a checkpoint at `length` saves enough compared with a checkpoint at
        `before`.
        """
        computing = left.seconds * (length - before) / len(left.prompt)
        num_blocks = (length - 1) // BLOCK - max(0, before - 1) // BLOCK
        reading = num_blocks * self._price.seconds(self._block_bytes)
        return computing >= WORTH * (reading + self._checkpoint_seconds(1 + (length - 1) % BLOCK))

    def _note_keys(self, left: Left) -> None:
        """Record balancers' keys for prefixes of `left` whose whole blocks are all on disk.

        The tokens after the last whole block are computed in any case.
        """
        there = tuple(takewhile(self.known.__contains__, self._names.of(left.prompt)))
        for length, key in left.marks:
            num_blocks = min(length // BLOCK, len(there))
            name, end = there[num_blocks - 1] if num_blocks else "", num_blocks * BLOCK
            if self._state_bytes:
                found = self._deepest(left.prompt, there, length)
                name, end = (found.name, found.length) if found is not None else ("", 0)
            if length - end < BLOCK:
                self.known.note(key, name)

    def _ask(self, writing: _Writing) -> None:
        end = writing.ends[0]
        writing.start = end - BLOCK
        if self._state_bytes:
            names = writing.names[: (end - 1) // BLOCK]
            writing.start = BLOCK * sum(1 for _ in takewhile(self._has, names))
        self._hand_out(
            writing.prompt.part(0, end),
            lambda prefix: self._news.put(_HandedOut(prefix)),
            start=writing.start,
            can_wait=True,
        )

    def _handed_out(self, prefix: StoredPrompt | None) -> None:
        writing = self._writing
        if writing is None:
            return
        wanted = writing.start, writing.ends.popleft()
        if prefix is not None and (prefix.start, len(prefix.prompt)) == wanted:
            save = self._save_checkpoint if prefix.checkpoints else self._save_block
            if not save(writing, prefix):
                self._writing = None
                return
        elif not self._state_bytes:
            writing.ends.clear()  # a block is useful only with all blocks before it
        if writing.ends:
            self._ask(writing)
            return
        self._touch(takewhile(self.known.__contains__, writing.names))
        self._writing = None

    def _save_block(self, writing: _Writing, prefix: StoredPrompt) -> bool:
        """Write the block at the end of `prefix`; return whether it is on disk now."""
        block = StoredPrompt(writing.prompt.part(prefix.start, len(prefix.prompt)), prefix.pieces)
        return self._save(writing.names[prefix.start // BLOCK], block)

    def _save_checkpoint(self, writing: _Writing, prefix: StoredPrompt) -> bool:
        """Write a checkpoint after the blocks that it needs; return whether it is on disk now."""
        prompt, (state,) = prefix.prompt, prefix.checkpoints
        end = whole(state.length - 1)
        names = writing.names[: end // BLOCK]
        blocks, first = _in_blocks(prefix.pieces), prefix.start // BLOCK
        for place, name in enumerate(names[first:], first):
            part, pieces = prompt.part(place * BLOCK, (place + 1) * BLOCK), blocks[place - first]
            if not self._has(name) and not self._save(name, StoredPrompt(part, pieces)):
                return False
        name = self._names.checkpoint(
            names[-1] if names else self._names.start, prompt, end, state.length
        )
        rest = blocks[-1] if len(blocks) > len(names) - first else ()
        tail = replace(state, length=state.length - end)
        part = prompt.part(end, state.length)
        if not self._save(name, StoredPrompt(part, rest, checkpoints=(tail,))):
            return False
        self._learn(name, self._tails)
        self._touch((*names, name))
        return True

    def _save(self, name: str, block: StoredPrompt) -> bool:
        """Write a block; return whether it is on disk now."""
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
        self.known.add(name, sum(map(len, parts)))
        self._bad.pop(name, None)
        self._num_written += 1
        return True


def _file(name: str) -> str:
    return f"{name}{CHECKPOINT_SUFFIX if is_checkpoint(name) else BLOCK_SUFFIX}"


def _in_blocks(pieces: Iterable[Piece]) -> list[tuple[Piece, ...]]:
    """Group `pieces` by block; the last group may be a part of a block. Raises `ValueError`."""
    blocks, end = list[tuple[Piece, ...]](), 0
    for piece in pieces:
        if not end % BLOCK:
            blocks.append(())
        if end % BLOCK + piece.num_tokens > BLOCK:
            raise ValueError(f"a piece of {piece.num_tokens} tokens belongs to two blocks")
        blocks[-1] = (*blocks[-1], piece)
        end += piece.num_tokens
    return blocks
