"""A store, files, and a runner of batches whose lines are answered by the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.view import FleetTotals, ForegroundView, ModelView
from arriero.balancer.jobs.batch import Batch, BatchCaller, NewBatch
from arriero.balancer.jobs.blobs import LocalBlobs
from arriero.balancer.jobs.files import Files
from arriero.balancer.jobs.files_place import FileLimits, WorkPlace
from arriero.balancer.jobs.jobs import Jobs
from arriero.balancer.jobs.lines import Answered, Line
from arriero.balancer.jobs.runner import Runner
from arriero.balancer.store.job_records import SavedFile
from arriero.balancer.store.jobs import JobStore
from arriero.shared.reports.model_info import ModelInfo
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

URL = "/v1/completions"


class Clock:
    """Goes on by `tick` with each look, and where it is moved."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 1000.0
        self._tick = tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now


class FakeFleet:
    """A fleet's numbers; `change` tells who follows it."""

    def __init__(
        self,
        slots: Mapping[str | None, int] | None = None,
        *,
        known: Mapping[str, tuple[str, ...]] | None = None,
        queue_limit: int = 256,
    ) -> None:
        self.slots = dict({"m": 4, None: 4} if slots is None else slots)
        self.known = dict(known or {})
        self.queue_limit = queue_limit
        self.others = ForegroundView()
        self._changed = asyncio.Event()

    @property
    def views(self) -> "FakeFleet":
        return self

    def num_slots_for(self, model: str | None) -> int:
        return self.slots.get(model, 0)

    def model(self, name: str, caller: Caller = ANONYMOUS) -> ModelView | None:
        if name not in self.known:
            return None
        info = ModelInfo(
            name=name,
            architecture="llama",
            parameters=1,
            size_bytes=1,
            context_size=2048,
            tasks=self.known[name],
        )
        return ModelView(info=info, status="loaded")

    def foreground(self, model: str | None) -> ForegroundView:
        return self.others

    def totals(self) -> FleetTotals:
        return FleetTotals(
            num_agents=1,
            is_ready=True,
            is_draining=False,
            queue_depth=0,
            queue_limit=self.queue_limit,
            slots_total=sum(self.slots.values()),
            slots_busy=0,
            tokens_total=0,
            items_ignored=0,
        )

    def change(self) -> None:
        self._changed.set()

    async def changes(self) -> AsyncIterator[None]:
        while True:
            yield
            await self._changed.wait()
            self._changed.clear()


Answer = Callable[[Line, Caller], Awaitable[Answered]]


async def echo(line: Line, _caller: Caller) -> Answered:
    """Says what was asked."""
    await asyncio.sleep(0)
    return Answered(status=200, body=line.body, request_id=f"r{line.number}")


def request_line(number: int, **body: object) -> bytes:
    """A line of an input."""
    value = {
        "custom_id": f"r{number}",
        "method": "POST",
        "url": URL,
        "body": {"model": "m", "prompt": f"p{number}", **body},
    }
    return json.dumps(value).encode() + b"\n"


class House:
    """One place for files, a store, and balancers that come and go there."""

    def __init__(self, folder: Path, store: JobStore | None = None) -> None:
        self.folder = folder
        self.store = MemoryStore().jobs if store is None else store
        self.fleet = FakeFleet()
        self.clock = Clock(tick=0.001)
        self.answer: Answer = echo
        self.callers: dict[str | None, Caller | None] = {None: ANONYMOUS, "ann": Caller(name="ann")}
        self.limits = FileLimits()

    def caller_of(self, maker: BatchCaller) -> Caller | None:
        return self.callers.get(maker.owner)

    def jobs(self, work: WorkPlace) -> Jobs:
        blobs = LocalBlobs(self.folder)
        files = Files(self.store, blobs, self.limits, clock=self.clock)
        runner = Runner(
            name=work.name,
            folder=work.folder,
            spool=self.folder / "work",
            store=self.store,
            blobs=blobs,
            files=files,
            fleet=self.fleet,
            handle_line=self.answer,
            caller_of=self.caller_of,
            patience=60.0,
            clock=self.clock,
        )
        return Jobs(files, runner)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Jobs]:
        """A balancer that runs batches; leaving this ends it at once, wherever it is."""
        with WorkPlace.take(self.folder / "work") as work:
            jobs = self.jobs(work)
            task = asyncio.create_task(jobs.run())
            try:
                yield jobs
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def uploaded(jobs: Jobs, data: bytes, owner: str | None = None) -> SavedFile:
    """A file of an input."""
    async with jobs.files.upload(owned(owner)) as upload:
        await upload.write(data)
        return await upload.keep(name="in.jsonl", purpose="batch", expires_after=None)


def owned(owner: str | None) -> Caller:
    """A caller whose key makes things belong to this owner."""
    return ANONYMOUS if owner is None else Caller(name=owner, owner=owner)


async def created(
    jobs: Jobs, data: bytes, *, caller: Caller = ANONYMOUS, window: float = 3600.0
) -> Batch:
    """A batch of these lines."""
    file = await uploaded(jobs, data, caller.owner)
    wanted = NewBatch(
        input_file=file.id, endpoint=URL, window=window, completion_window=f"{window:g}s"
    )
    return await jobs.batches.create(wanted, caller)


async def ended(jobs: Jobs, id: str, owner: str | None = None) -> Batch:
    """The batch when nothing more happens to it."""
    async with asyncio.timeout(HANGS):
        while True:
            saved = await jobs.batches._store.batch(id)
            if saved is not None and not saved.is_open:
                return await jobs.batches.find(id, owner)
            await asyncio.sleep(0.02)


async def content(jobs: Jobs, id: str | None, owner: str | None = None) -> list[dict[str, object]]:
    """The lines of a file; none of no file."""
    if id is None:
        return []
    file = await jobs.files.find(id, owner)
    data = b"".join([piece async for piece in jobs.files.read(file, 0, file.num_bytes)])
    return [json.loads(line) for line in data.splitlines()]
