"""Lines that are asked: each settles once, whatever becomes of it."""

import asyncio
import json
from pathlib import Path

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.jobs.core.batch import BatchCaller
from arriero.balancer.jobs.core.lines import Answered, Line, parse_line
from arriero.balancer.jobs.core.schedule import LineKey
from arriero.balancer.jobs.line_runs import LineRuns
from arriero.balancer.jobs.work_place import WorkPlace
from tests.balancer.jobs.builders import URL, House, created, echo, request_line
from tests.balancer.jobs.starting import all_next
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")


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
