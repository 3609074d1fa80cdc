"""One batch while it runs (`test_runner` has whole histories): results of before are kept."""

import asyncio
import json
from pathlib import Path

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.jobs.batch import BatchCaller
from arriero.balancer.jobs.batch_run import MAX_SAMPLES, WINDOW, BatchRun, LineRuns, Progress
from arriero.balancer.jobs.files_place import WorkPlace
from arriero.balancer.jobs.lines import Answered, Line, parse_line
from arriero.balancer.jobs.schedule import LineKey
from tests.balancer.jobs.builders import URL, House, content, created, echo, request_line
from tests.balancer.jobs.starting import all_next
from tests.waiting import HANGS

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
        await tools.store.claim_batch(batch.id, tools.runner, 0.0, 1.0)
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


def test_nobody_knows_at_first() -> None:
    progress = Progress(100.0)
    assert progress.rate(100.0) is None
    assert progress.rate(130.0) is None


def test_a_steady_pace() -> None:
    progress = Progress(0.0)
    for number in range(1, 1001):
        progress.ended(number / 10)
    assert progress.rate(100.0) == pytest.approx(10.0, rel=0.05)


def test_what_was_long_ago_does_not_count() -> None:
    progress = Progress(0.0)
    for number in range(1000):
        progress.ended(number / 1000)
    for number in range(int(2 * WINDOW)):
        progress.ended(1.0 + number)
    assert progress.rate(1.0 + 2 * WINDOW) == pytest.approx(1.0, rel=0.1)


def test_memory_is_bounded() -> None:
    progress = Progress(0.0)
    for number in range(10_000):
        progress.ended(float(number))
    assert len(progress._samples) <= MAX_SAMPLES
    assert progress.num_ended == 10_000


def line(number: int) -> Line:
    return parse_line(number, request_line(number), URL)


async def test_answers_and_cancelled_lines_are_taken_once(tmp_path: Path) -> None:
    house = House(tmp_path)

    async def answer(each: Line, caller: Caller) -> Answered:
        if each.number == 2:
            await asyncio.Event().wait()
        return await echo(each, caller)

    house.answer = answer
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, request_line(1))
        tools = jobs._runner._tools
        news = asyncio.Event()
        runs = LineRuns(batch, tools, news.set)
        tools.schedule.add(batch.id)
        tools.schedule.loaded(batch.id, 0, [line(n) for n in (1, 2, 3)])
        for _, each in all_next(tools.schedule, 0.0, lambda _: 2):
            runs.start(each)
        jobs._runner._is_pumping = True  # nothing more is started by itself
        await news.wait()
        [first] = runs.take()
        assert first.line.number == 1
        assert not first.is_error
        assert runs.take() == []
        runs.stop()
        runs.stop()
        await runs.stopped()
        left = {result.line.number: result.text for result in runs.take()}
        assert left == {2: None, 3: None}
        for number in (1, 2, 3):
            tools.schedule.ended(LineKey(batch.id, number))
        assert tools.schedule.num_loaded == 0


async def test_a_line_that_is_cancelled_before_it_began_settles_too(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, request_line(1))
        tools = jobs._runner._tools
        runs = LineRuns(batch, tools, lambda: None)
        tools.schedule.add(batch.id)
        tools.schedule.loaded(batch.id, 0, [line(1)])
        for _, each in all_next(tools.schedule, 0.0, lambda _: 2):
            runs.start(each)
        runs.stop()
        await runs.stopped()
        assert [result.text for result in runs.take()] == [None]


@pytest.mark.parametrize("place", ["caller", "answer", "result"])
async def test_a_fault_of_ours_is_the_lines_error_wherever_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    class Faulty(House):
        def caller_of(self, maker: BatchCaller) -> Caller:
            if place == "caller":
                raise RuntimeError("a mistake of ours")
            return ANONYMOUS

    async def answer(each: Line, caller: Caller) -> Answered:
        if place == "answer":
            raise RuntimeError("a mistake of ours")
        return Answered(status=200, body=b"{}" if place == "caller" else "{}")  # type: ignore

    house = Faulty(tmp_path)
    house.answer = answer
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, request_line(1))
        tools = jobs._runner._tools
        news = asyncio.Event()
        runs = LineRuns(batch, tools, news.set)
        tools.schedule.add(batch.id)
        tools.schedule.loaded(batch.id, 0, [line(1)])
        for _, each in all_next(tools.schedule, 0.0, lambda _: 1):
            runs.start(each)
        async with asyncio.timeout(HANGS):
            await news.wait()
        [result] = runs.take()
    assert result.text is not None
    told = json.loads(result.text)
    assert (told["custom_id"], told["error"]["code"]) == ("r1", "internal_error")
    assert "Traceback" in caplog.text
