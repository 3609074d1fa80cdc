"""Runs the open batches whose leases this balancer holds, and takes free batches.

An error ends only its own batch. If the store or the files cannot be reached, the batch is tried
again later.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from ..fleet.caller import Caller
from ..fleet.shares import EVERYBODY, Shares
from ..store.jobs import JobStore
from ..store.port import StoreAway
from .batch import Batch, BatchCaller, Fault, from_document
from .batch_run import BatchRun, BatchTaken
from .batches import MAX_ENDED, Batches
from .blobs import Blobs, BlobsAway
from .files import Files, delete_orphans
from .results import Spool
from .schedule import Capacity, Schedule, Views
from .tools import LEASE, RECHECK, Ended, HandleLine, Tools

logger = logging.getLogger(__name__)

MAX_RUNS = 16
"""Maximum batches that run at once. Callers share this number fairly; other batches wait."""

INPUTS_AT_ONCE = 2
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Maximum seconds until a batch tries to reach the store or the files again. The pause doubles."""

LAST_WORDS = 2.0
"""Seconds at the end to release the leases in the store."""

ORPHANS_EVERY = 6 * 3600.0
"""Seconds between two searches for blobs to which no file refers."""

INTERNAL = Fault(
    code="internal_error", message=("internal error; the balancer's log has the details")
)


class Fleet(Protocol):
    """The part of the fleet's runtime that batches use."""

    @property
    def views(self) -> Views: ...

    def changes(self) -> AsyncIterator[None]: ...


class Runner:
    """Runs the batches of a balancer. Call `run` once."""

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        spool: Path,
        store: JobStore,
        blobs: Blobs,
        files: Files,
        fleet: Fleet,
        handle_line: HandleLine,
        caller_of: Callable[[BatchCaller], Caller | None],
        patience: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a runner. `name` is the balancer's name in leases, and `folder` its folder.

        `spool` is the folder for results. A balancer that takes over a batch continues with these
        results if both share the folder. For `patience` seconds after the start, lines wait for
        unknown models.
        """
        self._fleet = fleet
        self._clock = clock
        self.batches = Batches(store, files, on_change=self.changed, clock=clock)
        self._schedule = Schedule()
        self._capacity = Capacity(fleet.views, patience=patience, now=clock(), clock=clock)
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self.runs: dict[str, BatchRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.shares: Shares[str] = Shares(MAX_RUNS, everybody=EVERYBODY)
        self.ended = Ended()
        self._tools = Tools(
            runner=name,
            store=store,
            blobs=blobs,
            files=files,
            batches=self.batches,
            spool=Spool(spool),
            scratch=folder,
            schedule=self._schedule,
            ended=self.ended,
            checking=asyncio.Semaphore(INPUTS_AT_ONCE),
            handle_line=handle_line,
            caller_of=caller_of,
            has_room=self._has_room,
            model_may_come=self._capacity.may_come,
            pump=self.pump,
            clock=clock,
        )

    @property
    def num_running(self) -> int:
        """The number of running lines."""
        return self._schedule.num_running

    @property
    def num_loaded(self) -> int:
        """The number of lines in memory."""
        return self._schedule.num_loaded

    def changed(self) -> None:
        """Look for batches that a caller has created or cancelled."""
        self._news.set()

    async def run(self) -> None:
        """Run batches until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_leases())
                tasks.create_task(self._follow_fleet())
                tasks.create_task(self._expire_files())
                await self._run_open(tasks)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._let_go()

    def pump(self) -> None:
        """Start the lines that may run now, one in each turn of the event loop.

        Other requests that arrive in the meantime need not wait for all lines.
        """
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._start_one)

    def _start_one(self) -> None:
        self._is_pumping = False
        started = self._schedule.start_next(self._clock(), self._capacity.room)
        if started is not None:
            key, line = started
            self.runs[key.batch].start(line)
            self.pump()
            return
        for id, run in self.runs.items():
            if self._schedule.has(id):
                run.wake_for_more()
        self._arm()

    async def _let_go(self) -> None:
        """Release the batches for other runners. If this fails, the leases expire."""
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._tools.store.release(self._tools.runner)
        except (StoreAway, TimeoutError) as error:
            logger.warning(
                "other balancers can take this balancer's batches only after its leases expire: %s",
                error,
            )

    # ---- tasks

    async def _run_open(self, tasks: asyncio.TaskGroup) -> None:
        """Give each open batch a task, and tell running batches about changes."""
        is_first = True
        while True:
            self._news.clear()
            try:
                if is_first:
                    await self._start()
                is_first = False
                await self._update_runs(tasks)
                pause = RECHECK
            except StoreAway as error:
                logger.warning("batches wait until the store is back: %s", error)
                pause = FIRST_PAUSE
            except Exception:  # the boundary of one look: batches that run go on
                logger.exception("the balancer could not load the open batches and tries again")
                pause = LONGEST_PAUSE
            try:
                async with asyncio.timeout(pause):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _start(self) -> None:
        """Release the batches of an earlier run, and delete unneeded results."""
        spool = self._tools.spool
        await self._tools.store.release(self._tools.runner)
        left = await asyncio.to_thread(spool.batches)  # first: others make batches meanwhile
        for id in left - {each.id for each in await self._tools.store.open_batches()}:
            await asyncio.to_thread(spool.forget, id)

    async def _update_runs(self, tasks: asyncio.TaskGroup) -> None:
        for saved in await self._tools.store.open_batches():
            try:
                batch = from_document(saved.document)
            except ValueError:
                logger.exception(
                    "the batch %s does not run: another version of Arriero saved the "
                    "batch, and this version cannot read it",
                    saved.id,
                )
                continue
            run = self.runs.get(batch.id)
            owner = saved.owner or EVERYBODY
            if run is None and self.shares.may_take(owner, 1):
                if (claimed := await self._claimed(batch.id)) is not None:
                    self.shares.take(owner, 1)
                    self.runs[batch.id] = BatchRun(claimed, self._tools)
                    task = tasks.create_task(self._run_batch(batch.id, owner))
                    self._tasks[batch.id] = task
            elif run is not None and batch.stop != run.batch.stop and not run.batch.has_ended:
                run.changed(batch)

    async def _claimed(self, id: str) -> Batch | None:
        """Return the batch as now stored, if this balancer has or gets its lease."""
        now = self._clock()
        saved = await self._tools.store.claim_batch(id, self._tools.runner, now, now + LEASE)
        return None if saved is None else from_document(saved.document)

    async def _run_batch(self, id: str, owner: str) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    if (batch := await self._claimed(id)) is None:
                        return None
                    self.runs[id] = BatchRun(batch, self._tools)
                    return await self.runs[id].run()
                except BatchTaken:
                    logger.warning(
                        "the batch %s continues at another balancer: this balancer lost its lease",
                        id,
                    )
                    return None
                except (StoreAway, BlobsAway) as error:
                    logger.warning(
                        "the batch %s waits %g s before it tries again: %s", id, pause, error
                    )
                except Exception:
                    logger.exception("the batch %s has failed: unexpected error", id)
                    return await self._give_up(id)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            del self.runs[id], self._tasks[id]
            self.shares.give_back(owner, 1)
            self._news.set()

    async def _give_up(self, id: str) -> None:
        """End the batch as failed. The log has the reason."""
        now = self._clock()
        try:
            if await self._claimed(id) is None:
                return  # another balancer has it, and may get on
            await self.batches.change(
                id,
                lambda batch: batch if batch.has_ended else batch.failed((INTERNAL,), now),
                is_open=False,
            )
        except StoreAway as error:
            logger.warning("the batch %s failed, but its end could not be saved: %s", id, error)

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(RECHECK)
            if not (mine := set(self.runs)):
                continue
            try:
                until = self._clock() + LEASE
                for id in mine - await self._tools.store.extend_leases(self._tools.runner, until):
                    if (task := self._tasks.get(id)) is not None:
                        task.cancel()  # another balancer has it, or it has ended
            except StoreAway as error:
                logger.warning("the balancer could not extend its leases on batches: %s", error)
            except Exception:  # the boundary of one renewal: the next one tries again
                logger.exception("the balancer could not extend its leases on batches")

    async def _follow_fleet(self) -> None:
        async for _ in self._fleet.changes():
            if self._schedule.num_loaded:
                self.pump()

    async def _expire_files(self) -> None:
        """Delete expired files and blobs without a file, and forget old batches."""
        orphans_deleted_at = float("-inf")
        while True:
            try:
                if self._clock() - orphans_deleted_at >= ORPHANS_EVERY:
                    orphans_deleted_at = self._clock()
                    await delete_orphans(self._tools.store, self._tools.blobs, orphans_deleted_at)
                while await self._tools.files.delete_expired():
                    pass
                await self._tools.store.forget_ended(MAX_ENDED)
            except (StoreAway, BlobsAway) as error:
                logger.warning(
                    "the balancer could not delete expired files and tries again: %s", error
                )
            except Exception:  # the boundary of one look: the next one tries again
                logger.exception("the balancer could not delete expired files and tries again")
            await asyncio.sleep(60.0)

    # ---- inside

    def _has_room(self, id: str) -> bool:
        return self._schedule.num_waiting(id) < self._capacity.loads_ahead()

    def _arm(self) -> None:
        """Set the timer that starts lines again when a pause is over."""
        now = self._clock()
        times = [self._schedule.next_deadline(now)]
        if self._schedule.num_loaded:
            times.append(self._capacity.deadline)
        at = min((each for each in times if each is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay = max(at - now, 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay, self.pump)
