"""A parent runs its workers, starts a lost one again, and ends when all have."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.balancer.workers.place import Place
from arriero.balancer.workers.supervisor import Supervisor
from arriero.shared.lifecycle import Shutdown
from arriero.shared.quantities import Address
from tests.balancer.workers import fake_worker
from tests.waiting import HANGS

PLACE = Place(0, 2, "", Address("127.0.0.1", 1), Address("127.0.0.1", 2))
WORKER = [sys.executable, fake_worker.__file__]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS):
        while not holds():  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0)


async def test_a_worker_that_is_lost_starts_again_and_all_end_together(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")

    def started() -> list[int]:
        records = [each for each in caplog.records if each.message == "a worker starts"]
        return [vars(each)["context"]["pid"] for each in records]

    shutdown, said = Shutdown(), ""

    def is_ready() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said == "ready balancer inference=127.0.0.1:1\n"

    async with asyncio.TaskGroup() as group:
        running = group.create_task(Supervisor(WORKER, PLACE, group).run(shutdown))
        await until(is_ready)
        os.kill(started()[1], signal.SIGKILL)
        await until(lambda: len(started()) == 3)
        shutdown.request("the test is over")
        assert await running == 0
    assert "a worker has ended, and starts again after a pause" in caplog.text


async def test_one_that_ends_in_the_middle_of_a_line_ends_nobody_else(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    shutdown, torn = Shutdown(), [*WORKER, "torn", str(tmp_path / "torn")]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Supervisor(torn, PLACE, group).run(shutdown))
        await until(lambda: caplog.text.count("a worker starts") == 3)
        shutdown.request("the test is over")
        assert await running == 0
    assert "a worker cannot be understood" in caplog.text


async def test_one_that_cannot_start_is_the_end() -> None:
    async with asyncio.TaskGroup() as group:
        assert await Supervisor([*WORKER, "fails"], PLACE, group).run(Shutdown()) == 3
    async with asyncio.TaskGroup() as group:
        assert await Supervisor(["/no/such/program"], PLACE, group).run(Shutdown()) == 1
