"""Runs one batch: checks its input, runs its lines, and joins its results.

One balancer runs a batch, because its `Runner` has a lease on the batch. One task (`run`) controls
the batch and writes all results. A line is loaded only if its chunk has no result for it, so each
line gets one result.

Each running line is a task of `LineRuns`, which keeps the result until `run` writes it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...shared.errors import InternalError, RequestTimeout
from ..access.access import Access
from ..fleet.caller import Caller
from ..store.job_records import Chunk
from .batch import Batch, BatchCaller, Fault
from .blobs import blob_of, on_thread
from .inputs import BatchStopped, Index, check_input, read_chunk
from .lines import Again, Line, answer_line, error_line, in_order, judge
from .results import ChunkSpool, finalize
from .schedule import LineKey
from .tools import RECHECK, Tools

logger = logging.getLogger(__name__)

OUR_FAULT = InternalError("internal error; the balancer's log has the details")

GONE = Again(1.0, is_attempt=False, for_all=True)
"""The outcome of a line whose key is no longer valid. The batch's task then ends the batch."""


@dataclass(frozen=True, slots=True)
class LineResult:
    """The result of a line. If `text` is `None`, the line has not run."""

    line: Line
    text: bytes | None
    is_error: bool = True


class LineRuns:
    """The running lines of a batch. Each line is a task with one result.

    `on_result` is called when `take` has a new result.
    """

    def __init__(self, batch: Batch, tools: Tools, on_result: Callable[[], None]) -> None:
        self._batch = batch
        self._tools = tools
        self._on_result = on_result
        self._results: list[LineResult] = []
        self._tasks: dict[int, asyncio.Task[Again | LineResult]] = {}
        self._tries: dict[int, tuple[int, int]] = {}

    def start(self, line: Line) -> None:
        """Start the task of a line."""
        task = asyncio.get_running_loop().create_task(self._outcome(line))
        self._tasks[line.number] = task
        task.add_done_callback(lambda done: self._done(line, done))

    def take(self) -> list[LineResult]:
        """Return the results that came after the last call."""
        results, self._results = self._results, []
        for result in results:
            self._tries.pop(result.line.number, None)
        return results

    def stop(self) -> None:
        """Stop all lines: cancel running lines, and end waiting lines without a result."""
        for task in self._tasks.values():
            task.cancel()
        waiting = self._tools.schedule.withdraw(self._batch.id)
        self._results += [LineResult(line, None) for line in waiting]

    async def stopped(self) -> None:
        """Wait until no line runs. Call `stop` first."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _done(self, line: Line, task: asyncio.Task[Again | LineResult]) -> None:
        del self._tasks[line.number]
        key = LineKey(self._batch.id, line.number)
        outcome = LineResult(line, None) if task.cancelled() else task.result()
        if isinstance(outcome, Again):
            at = self._tools.clock() + outcome.pause
            self._tools.schedule.again(key, at, for_all=outcome.for_all)
        else:
            self._tools.schedule.settle(key)
            self._results.append(outcome)
        self._on_result()
        self._tools.pump()

    async def _outcome(self, line: Line) -> Again | LineResult:
        """Run a line, and return its result or when to try again. An error ends only this line."""
        try:
            return await self._run(line)
        except Exception:
            logger.exception(
                "the batch %s: unexpected error in line %d", self._batch.id, line.number
            )
            return LineResult(line, error_line(self._batch.id, line, OUR_FAULT))

    async def _run(self, line: Line) -> Again | LineResult:
        if line.problem is not None:
            return LineResult(line, error_line(self._batch.id, line, line.problem))
        caller = self._tools.caller_of(self._batch.caller)
        if caller is None:
            return GONE
        answered = await self._tools.handle_line(line, caller)
        attempts, refusals = self._tries.get(line.number, (0, 0))
        outcome = judge(
            answered.error,
            num_attempts=attempts,
            num_refusals=refusals,
            model_may_come=self._tools.model_may_come(line.model),
        )
        if isinstance(outcome, Again):
            counts = (1, 0) if outcome.is_attempt else (0, 1)
            self._tries[line.number] = (attempts + counts[0], refusals + counts[1])
            return outcome
        text = answer_line(self._batch.id, line, answered)
        return LineResult(line, text, is_error=outcome.is_error)


WINDOW = 60.0
MAX_SAMPLES = 120


class Progress:
    """The speed of a batch, from the lines that ended in the last minute.

    Times are in seconds of one clock.
    """

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)], maxlen=MAX_SAMPLES)
        self.num_ended = 0
        """The number of lines that have ended since this object was made."""

    def ended(self, now: float) -> None:
        """Count a line that has a result."""
        self.num_ended += 1
        if now - self._samples[-1][0] >= WINDOW / MAX_SAMPLES:
            self._samples.append((now, self.num_ended))

    def rate(self, now: float) -> float | None:
        """Return the lines per second, or `None` if too few lines have ended."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW:
            self._samples.popleft()
        since, num_before = self._samples[0]
        num = self.num_ended - num_before
        return num / (now - since) if num and now > since else None


def callers(
    access: Access, clock: Callable[[], float] = time.time, *, outlive_keys: bool = False
) -> Callable[[BatchCaller], Caller | None]:
    """Return a function that returns the caller of a batch with the present limits of its key.

    The function returns `None` if the key is no longer valid. If batches `outlive_keys`, it
    returns a caller with only the limits that apply to all callers.
    """

    def caller_of(maker: BatchCaller) -> Caller | None:
        if maker.owner is None:
            return Caller(address=maker.address, user_agent="batch")
        key = access.ring.get(maker.name)
        if key is None or key.identity.owner != maker.owner or key.problem(clock()) is not None:
            ended = Caller(name=maker.name, user_agent="batch", owner=maker.owner)
            return ended if outlive_keys else None
        return Caller(name=maker.name, user_agent="batch", limits=key.limits, owner=maker.owner)

    return caller_of


class BatchTaken(Exception):
    """Another balancer now runs the batch."""


KEY_GONE = Fault(code="unauthorized", message="the key that made the batch is no longer valid")


@dataclass(slots=True)
class _Open:
    """A chunk with running lines."""

    chunk: Chunk
    spool: ChunkSpool


class BatchRun:
    """One run of a batch. Call `changed` if the batch changed, and `wake` after other changes."""

    def __init__(self, batch: Batch, tools: Tools) -> None:
        self.batch = batch
        self.progress = Progress(tools.clock())
        self.num_completed = 0
        self.num_failed = 0
        """The numbers of lines with an output, and with an error, in unstored chunks."""
        self._tools = tools
        self._lines = LineRuns(batch, tools, self.wake)
        self._news = asyncio.Event()
        self._chunks: dict[int, _Open] = {}
        self._chunk_of: dict[int, int] = {}
        self._finished: list[int] = []
        self._last_loaded = -1
        self._has_more = True
        self._is_over = False

    def wake(self) -> None:
        """Let the batch's task check again what to do."""
        self._news.set()

    def wake_for_more(self) -> None:
        """Let the batch's task load more lines, because more lines may run."""
        if self._wants_chunk():
            self._news.set()

    def changed(self, batch: Batch) -> None:
        """Use `batch`, which a caller has changed."""
        self.batch = batch
        self.wake()

    def start(self, line: Line) -> None:
        """Start the task of a line."""
        self._lines.start(line)

    async def run(self) -> None:
        """Run the batch to its end.

        Raises `StoreAway`, `BlobsAway` or `BatchTaken`; another run may then continue the batch.
        """
        try:
            if self.batch.status == "validating":
                await self._check()
            if self.batch.status in ("in_progress", "cancelling"):
                await self._work()
            if not self.batch.has_ended:
                await self._put_together()
            await self._clear_away()
        finally:
            self._is_over = True

    # ---- the input

    async def _check(self) -> None:
        try:
            found = await check_input(self.batch, self._tools, self._is_checking)
        except BatchStopped:
            return
        now = self._tools.clock()
        self.batch = await self._tools.batches.change(
            self.batch.id, lambda batch: _checked(batch, found, now)
        )

    def _is_checking(self) -> bool:
        return self.batch.status == "validating" and not self._is_over

    # ---- the lines

    async def _work(self) -> None:
        schedule, id = self._tools.schedule, self.batch.id
        schedule.add(id, self.batch.caller.owner)
        try:
            while await self._step():
                pass
        finally:
            self._lines.stop()
            await self._lines.stopped()
            try:
                self._write(self._lines.take())  # what came last is kept for the next run
            finally:
                schedule.remove(id)

    async def _step(self) -> bool:
        """Do all present work, then wait for more. Returns whether the batch has more work."""
        self._news.clear()
        await self._look_at_ends()
        if self.batch.stop is not None:
            self._lines.stop()
        await self._write_results()
        await self._store_finished()
        if self._wants_chunk() and await self._load_chunk():
            return True
        if self._is_done():
            return False
        self._tools.pump()
        await self._wait(self._pause())
        return True

    def _pause(self) -> float:
        left = self.batch.expires_at - self._tools.clock()
        return RECHECK if self.batch.stop is not None else min(RECHECK, max(left, 0.0) + 0.001)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def _look_at_ends(self) -> None:
        """End the batch if its time is over or its key is no longer valid."""
        tools, now = self._tools, self._tools.clock()
        is_gone = self.batch.stop is None and tools.caller_of(self.batch.caller) is None
        if is_gone or self.batch.expiring(now) != self.batch:
            self.batch = await tools.batches.change(
                self.batch.id, lambda batch: _stopped(batch, now, is_gone=is_gone)
            )

    def _is_done(self) -> bool:
        return not self._chunks and (self.batch.stop == "cancelled" or not self._has_more)

    async def _write_results(self) -> None:
        results = [self._expired(result) for result in self._lines.take()]
        if not results:
            return
        await _to_its_end(self._write, results)
        now = self._tools.clock()
        for result in results:
            number = result.line.number
            if result.text is not None:
                self._count([result.is_error])
                self.progress.ended(now)
                self._tools.ended.num_failed += result.is_error
                self._tools.ended.num_completed += not result.is_error
            del self._chunk_of[number]
            chunk = self._tools.schedule.ended(LineKey(self.batch.id, number))
            if chunk is not None:
                self._finished.append(chunk)

    def _write(self, results: Sequence[LineResult]) -> None:
        for result in results:
            if result.text is not None:
                spool = self._chunks[self._chunk_of[result.line.number]].spool
                spool.add(result.line.number, result.text, is_error=result.is_error)

    def _expired(self, result: LineResult) -> LineResult:
        """Return the result, or an error if the batch has expired and the line did not run."""
        if result.text is not None or self.batch.stop != "expired":
            return result
        error = RequestTimeout(
            "the line did not run before the completion window of the batch ended"
        )
        text = error_line(self.batch.id, result.line, error, code="batch_expired")
        return replace(result, text=text)

    def _count(self, are_errors: Sequence[bool]) -> None:
        num_failed = sum(are_errors)
        self.num_failed += num_failed
        self.num_completed += len(are_errors) - num_failed

    # ---- chunks

    def _wants_chunk(self) -> bool:
        if not self._has_more or self.batch.stop == "cancelled":
            return False
        return not self._chunks or self._tools.has_room(self.batch.id)

    async def _load_chunk(self) -> bool:
        tools = self._tools
        chunk = await tools.store.next_chunk(self.batch.id, self._last_loaded)
        if chunk is None:
            self._has_more = False
            return False
        self._last_loaded = chunk.number
        lines, spool = await on_thread(self._opened, chunk)
        self._chunks[chunk.number] = _Open(chunk, spool)
        self._count(list(spool.is_error.values()))
        todo = [line for line in lines if line.number not in spool.is_error]
        self._chunk_of |= dict.fromkeys((line.number for line in todo), chunk.number)
        tools.schedule.loaded(self.batch.id, chunk.number, in_order(todo))
        if not todo:
            self._finished.append(chunk.number)
        return True

    def _opened(self, chunk: Chunk) -> tuple[list[Line], ChunkSpool]:
        tools, batch = self._tools, self.batch
        with tools.blobs.open(blob_of(batch.input_file), chunk.offset) as file:
            lines = read_chunk(file, chunk, batch.endpoint)
        return lines, tools.spool.open(batch.id, chunk.number)

    async def _store_finished(self) -> None:
        while self._finished:
            await self._store_chunk(self._finished[0])
            del self._finished[0]

    async def _store_chunk(self, number: int) -> None:
        """Store the results of a complete chunk."""
        tools, opened = self._tools, self._chunks[number]
        spool = opened.spool
        is_whole = len(spool.is_error) == opened.chunk.num_lines
        if not is_whole and self.batch.stop != "cancelled":
            raise RuntimeError(f"{self.batch.id}: chunk {number} lacks results")
        key = f"batches/{self.batch.id}/{number}-{tools.runner}"
        results = await on_thread(spool.store, tools.blobs, key)
        if not await tools.store.commit_chunk(self.batch.id, number, tools.runner, results):
            raise BatchTaken(self.batch.id)
        del self._chunks[number]
        self.num_completed -= results.num_completed
        self.num_failed -= results.num_failed
        await asyncio.to_thread(spool.delete)

    # ---- the end

    async def _put_together(self) -> None:
        tools = self._tools
        now = tools.clock()
        self.batch = await tools.batches.change(
            self.batch.id, lambda batch: _finalizing(batch, now)
        )
        if not self.batch.has_ended:
            self.batch = await finalize(self.batch, tools.store, tools.blobs, tools.batches, now)

    async def _clear_away(self) -> None:
        tools, id = self._tools, self.batch.id
        await asyncio.to_thread(tools.spool.forget, id)
        await on_thread(tools.blobs.delete_all, f"batches/{id}")
        await tools.store.forget_chunks(id)
        await tools.batches.change(id, lambda batch: batch, is_open=False)
        logger.info("the batch %s has the status %s", id, self.batch.status)


async def _to_its_end(write: Callable[[list[LineResult]], None], results: list[LineResult]) -> None:
    """Write `results` on a thread.

    If the caller is cancelled, the write is still completed, so that the next run finds all
    results.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(write, results))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing})
        raise


def _checked(batch: Batch, found: Index, now: float) -> Batch:
    if batch.status != "validating":
        return batch
    if found.faults:
        return batch.failed(tuple(found.faults), now)
    return batch.begun(found.num_lines, now)


def _stopped(batch: Batch, now: float, *, is_gone: bool) -> Batch:
    if is_gone and batch.is_running:
        return replace(batch.cancelling(now), faults=(KEY_GONE,))
    return batch.expiring(now)


def _finalizing(batch: Batch, now: float) -> Batch:
    is_ready = batch.has_ended or batch.status == "finalizing"
    return batch if is_ready else batch.finalizing(now)
