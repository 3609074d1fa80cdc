"""Counts and pace as people see them while a batch runs."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.jobs.batch import BatchCaller
from arriero.balancer.jobs.batch_run import callers
from arriero.balancer.jobs.files_place import FileLimits, FilesPlace
from arriero.balancer.jobs.jobs import Pace, open_jobs
from arriero.balancer.jobs.lines import Answered, Line
from tests.balancer.jobs.builders import FakeFleet, House, created, echo, ended, request_line
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")


async def test_lines_count_as_soon_as_they_have_results(tmp_path: Path) -> None:
    house = House(tmp_path)
    is_held, may_go_on = asyncio.Event(), asyncio.Event()

    async def answer(line: Line, caller: Caller) -> Answered:
        if line.number == 301:
            is_held.set()
            await may_go_on.wait()
        return await echo(line, caller)

    house.answer = answer
    house.fleet.slots = {"m": 1}
    async with house.running() as jobs:
        data = b"".join(map(request_line, range(301)))
        id = (await created(jobs, data)).id
        await is_held.wait()
        async with asyncio.timeout(HANGS):
            while True:
                batch = await jobs.batches.find(id, None)
                if await jobs.counts(batch) == (300, 0):
                    break
                await asyncio.sleep(0.001)
        house.clock.now += 10.0
        pace = jobs.pace(batch, 300, house.clock())
        assert pace.rate and pace.seconds_left == 1 / pace.rate
        assert jobs.numbers().num_running == 1
        may_go_on.set()
        batch = await ended(jobs, id)
        assert await jobs.counts(batch) == (301, 0)
        assert jobs.pace(batch, 301) == Pace(None, None)


async def test_places_are_taken_and_given_up(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        async with AsyncExitStack() as stack:
            jobs = await open_jobs(
                MemoryStore().jobs,
                FilesPlace(tmp_path),
                FileLimits(),
                fleet=FakeFleet(),
                handle_line=echo,
                caller_of=lambda _: None,
                patience=1.0,
                until_the_end=stack,
            )
            names.append(jobs._runner._tools.runner)
    assert names[0] == names[1]


def key(name: str, created_at: float, expires_at: float | None = None) -> AccessKey:
    return AccessKey(
        name=name, digest=name * 64, role="inference", created_at=created_at, expires_at=expires_at
    )


def test_a_batch_runs_as_whoever_made_it() -> None:
    ann = key("a", 1.0, expires_at=50.0)
    now = 10.0
    caller_of = callers(Access([ann]), lambda: now)
    owner = ann.identity.owner
    caller = caller_of(BatchCaller(name="a", owner=owner))
    assert caller is not None
    assert (caller.name, caller.owner) == ("a", owner)
    assert caller_of(BatchCaller(name="a", owner="a@of another time")) is None
    assert caller_of(BatchCaller(name="b", owner="b@1")) is None
    nobody = caller_of(BatchCaller(name="anonymous", address="127.0.0.1"))
    assert nobody is not None and nobody.is_anonymous and nobody.address == "127.0.0.1"
    now = 51.0
    assert caller_of(BatchCaller(name="a", owner=owner)) is None
    outliving = callers(Access([ann]), lambda: now, outlive_keys=True)
    ended = outliving(BatchCaller(name="a", owner=owner))
    assert ended is not None and (ended.name, ended.owner) == ("a", owner)
