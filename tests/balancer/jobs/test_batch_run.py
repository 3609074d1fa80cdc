"""One batch while it runs (`test_runner` has whole histories): results of before are kept."""

from pathlib import Path

import pytest

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.jobs.batch_run import BatchRun
from arriero.balancer.jobs.core.lines import Answered, Line
from arriero.balancer.jobs.work_place import WorkPlace
from tests.balancer.jobs.builders import House, content, created, echo, request_line

pytestmark = pytest.mark.usefixtures("closes_stores")


async def test_lines_with_results_are_not_asked_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    asked: list[int] = []

    async def answer(line: Line, caller: Caller) -> Answered:
        asked.append(line.number)
        return await echo(line, caller)

    house.answer = answer
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, b"".join(map(request_line, range(4))))
        tools = jobs._runner._tools
        kept = tools.spool.open(batch.id, 0)
        kept.add(2, b'{"custom_id": "kept"}\n', is_error=False)
        kept.add(3, b'{"custom_id": "bad"}\n', is_error=True)
        run = jobs._runner.runs[batch.id] = BatchRun(batch, tools)
        await run.run()
        assert sorted(asked) == [1, 4]
        last = await jobs.batches.find(batch.id, None)
        assert (last.num_completed, last.num_failed) == (3, 1)
        outputs = await content(jobs, last.output_file)
        assert [each["custom_id"] for each in outputs] == ["r0", "kept", "r3"]
        assert [each["custom_id"] for each in await content(jobs, last.error_file)] == ["bad"]


async def test_one_that_had_ended_is_only_cleared_away(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, request_line(1))
        failed = await jobs.batches.change(batch.id, lambda each: each.failed((), 1.0))
        await BatchRun(failed, jobs._runner._tools).run()
        saved = await house.store.batch(batch.id)
        assert saved is not None
        assert not saved.is_open


async def test_what_another_balancer_has_checked_meanwhile_keeps_its_chunks(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, request_line(1))
        tools = jobs._runner._tools
        await BatchRun(batch, tools)._check()
        assert await house.store.lease_chunk(batch.id, "another", 0.0, 9.0) is not None
        late = BatchRun(batch, tools)
        await late._check()
        assert late.batch.status == "in_progress"
        assert await house.store.lease_chunk(batch.id, "a third", 1.0, 9.0) is None
        assert (await house.store.sums(batch.id)).num_chunks == 1
