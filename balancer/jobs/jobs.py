"""Combines the files and batches of one balancer."""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any

from ...shared.reports.figures import Family, Figure
from ..fleet.caller import Caller
from ..fleet.shares import Shares
from ..store.jobs import JobStore
from .batch import Batch, BatchCaller
from .files import Files
from .files_place import FileLimits, FilesPlace, WorkPlace, open_blobs, work_folder
from .runner import Fleet, Runner
from .tools import HandleLine

LINES = Family(
    "batch_lines", "Lines of batches that got a result.", label="result", is_counter=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNumbers:
    """The numbers of files, batches and lines in this balancer, for metrics and people."""

    num_files: Annotated[int, Figure(metric=Family("files", "Files that are kept."))]
    num_bytes: Annotated[
        int, Figure(metric=Family("files_bytes", "Bytes of the files that are kept."))
    ]
    num_uploads: Annotated[int, Figure(metric=Family("uploads", "Files that are being uploaded."))]
    num_batches: Annotated[
        int, Figure(metric=Family("batches", "Batches that this balancer runs."))
    ]
    num_loaded: Annotated[
        int,
        Figure(metric=Family("batch_lines_loaded", "Lines of batches in memory, running or not.")),
    ]
    num_running: Annotated[
        int, Figure(metric=Family("batch_lines_running", "Lines of batches that run."))
    ]
    num_completed: Annotated[int, Figure(metric=LINES, label="output")]
    num_failed: Annotated[int, Figure(metric=LINES, label="error")]


@dataclass(frozen=True, slots=True)
class Pace:
    """The lines per second of a batch, and the seconds until it is done; `None` if unknown."""

    rate: float | None
    seconds_left: float | None


class Jobs:
    """The files and batches of a balancer. `run` runs the batches."""

    def __init__(self, files: Files, runner: Runner) -> None:
        self.files = files
        self.batches = runner.batches
        self._runner = runner

    async def run(self) -> None:
        """Run batches, until cancelled."""
        await self._runner.run()

    async def reconcile(self) -> bool:
        """Check now whether another balancer has cancelled a batch."""
        self._runner.changed()
        return True

    def key_ended(self) -> None:
        """Check now for batches whose key is no longer valid."""
        for run in self._runner.runs.values():
            run.wake()

    async def counts(self, batch: Batch) -> tuple[int, int]:
        """Return the present numbers of lines with an output and with an error."""
        num_completed, num_failed = await self.batches.counts(batch)
        run = self._runner.runs.get(batch.id)
        if run is None or batch.has_ended:
            return num_completed, num_failed
        return num_completed + run.num_completed, num_failed + run.num_failed

    def pace(self, batch: Batch, num_done: int, now: float | None = None) -> Pace:
        """Return the speed of a batch in this balancer. `num_done` of its lines have results."""
        run = self._runner.runs.get(batch.id)
        rate = None if run is None else run.progress.rate(time.time() if now is None else now)
        if not rate or not batch.is_running:
            return Pace(None, None)
        return Pace(rate, max(0, batch.num_lines - num_done) / rate)

    def pools(self) -> dict[str, Shares[Any]]:
        """Return the shared pools of callers by name."""
        return {
            "uploads": self.files.uploads,
            "files": self.files.counts,
            "files_bytes": self.files.bytes,
            "batches_open": self.batches.open,
            "batches_running": self._runner.shares,
        }

    def numbers(self) -> JobNumbers:
        """Return the numbers of files, batches and lines, at a constant cost."""
        runner, totals = self._runner, self.files.totals
        return JobNumbers(
            num_files=totals.num_files,
            num_bytes=totals.num_bytes,
            num_uploads=self.files.uploads.total,
            num_batches=len(runner.runs),
            num_loaded=runner.num_loaded,
            num_running=runner.num_running,
            num_completed=runner.ended.num_completed,
            num_failed=runner.ended.num_failed,
        )


async def open_jobs(
    store: JobStore,
    place: FilesPlace,
    limits: FileLimits,
    *,
    fleet: Fleet,
    handle_line: HandleLine,
    caller_of: Callable[[BatchCaller], Caller | None],
    patience: float,
    until_the_end: AsyncExitStack,
) -> Jobs:
    """Open the folders and the storage of files. Raises `BlobsAway`, `OSError` or `StoreAway`."""
    blobs = open_blobs(place)
    work = until_the_end.enter_context(WorkPlace.take(work_folder(place)))
    files = Files(store, blobs, limits)
    await files.start()
    runner = Runner(
        name=work.name,
        folder=work.folder,
        spool=work_folder(place),
        store=store,
        blobs=blobs,
        files=files,
        fleet=fleet,
        handle_line=handle_line,
        caller_of=caller_of,
        patience=patience,
    )
    return Jobs(files, runner)
