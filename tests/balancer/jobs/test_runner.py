"""Batches from their input to their files, whatever ends the balancer in between."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.jobs import batch_run
from arriero.balancer.jobs import runner as runner_module
from arriero.balancer.jobs.inputs import CHUNK_LINES
from arriero.balancer.jobs.lines import Answered, Line
from arriero.balancer.store.job_records import Chunk, SavedBatch
from arriero.balancer.store.jobs import JobStore
from arriero.balancer.store.port import StoreAway
from arriero.shared.errors import AgentLost, EngineFailed, InvalidRequest, QueueFull, RequestError
from tests.balancer.jobs.builders import (
    House,
    content,
    created,
    echo,
    ended,
    owned,
    request_line,
)
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS, until

pytestmark = pytest.mark.usefixtures("closes_stores")

BEN = owned("ben")
NUM = 700
INPUT = b"".join(request_line(number) for number in range(NUM))


def failing(error: RequestError) -> Answered:
    return Answered(status=error.status, body=b"{}", error=error)


async def test_every_line_has_its_answer_in_the_order_of_the_input(tmp_path: Path) -> None:
    async with House(tmp_path).running() as jobs:
        batch = await ended(jobs, (await created(jobs, INPUT)).id)
        assert (batch.status, batch.num_lines) == ("completed", NUM)
        assert (batch.num_completed, batch.num_failed, batch.error_file) == (NUM, 0, None)
        lines = await content(jobs, batch.output_file)
        assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(NUM)]
        assert not (tmp_path / "batches" / batch.id).exists()
        assert jobs.numbers().num_completed == NUM
        assert jobs.numbers().num_loaded == 0


async def test_killed_again_and_again_each_line_has_one_result(tmp_path: Path) -> None:
    """Each balancer ends after so many answers, wherever its tasks are then."""
    house = House(tmp_path)
    asked: Counter[int] = Counter()
    killed = asyncio.Event()

    async def answer(line: Line, caller: Caller) -> Answered:
        asked[line.number] += 1
        if asked.total() % 61 == 0:
            killed.set()
            await asyncio.Event().wait()  # it was running when the balancer was killed
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        id = (await created(jobs, INPUT)).id
        await killed.wait()
    for _ in range(50):
        killed.clear()
        async with house.running() as jobs:
            over = asyncio.create_task(ended(jobs, id))
            kill = asyncio.create_task(killed.wait())
            await asyncio.wait({over, kill}, return_when=asyncio.FIRST_COMPLETED)
            kill.cancel()
            if over.done():
                batch = over.result()
                lines = await content(jobs, batch.output_file)
                break
            over.cancel()
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(NUM)]
    assert (batch.status, batch.num_completed) == ("completed", NUM)
    kills = asked.total() // 61
    assert kills > 5
    assert asked.total() <= NUM + kills * 7, "only what was running is asked again"


async def test_no_more_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    house = House(tmp_path)
    running = most = 0
    full = asyncio.Event()

    async def answer(line: Line, caller: Caller) -> Answered:
        nonlocal running, most
        running += 1
        if running == 4 + 2:
            full.set()
        most = max(most, running)
        async with asyncio.timeout(HANGS):
            await full.wait()  # lines begin one after the other
        answered = await echo(line, caller)
        running -= 1
        return answered

    house.answer = answer
    async with house.running() as jobs:
        await ended(jobs, (await created(jobs, INPUT)).id)
    assert most == 4 + 2


async def test_lines_are_loaded_before_those_before_them_have_ended(tmp_path: Path) -> None:
    house = House(tmp_path)
    has_begun = asyncio.Event()

    async def answer(line: Line, caller: Caller) -> Answered:
        if line.number > CHUNK_LINES:
            has_begun.set()
        if line.number == CHUNK_LINES:
            async with asyncio.timeout(HANGS):
                await has_begun.wait()
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        batch = await ended(jobs, (await created(jobs, INPUT)).id)
    assert (batch.num_completed, batch.num_failed) == (NUM, 0)


async def test_one_owners_batches_leave_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four that may run one owner has two, however many wait."""
    monkeypatch.setattr(runner_module, "MAX_RUNS", 4)
    house, goes_on = House(tmp_path), asyncio.Event()
    house.callers["ben"] = BEN
    ran: list[str] = []

    async def answer(line: Line, caller: Caller) -> Answered:
        ran.append(caller.name)
        if caller.name == "ann":
            await goes_on.wait()
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        anns = [await created(jobs, request_line(1), caller=owned("ann")) for _ in range(5)]
        bens = await created(jobs, request_line(1), caller=BEN)
        batch = await ended(jobs, bens.id, "ben")
        assert (batch.status, ran.count("ann")) == ("completed", 2)
        goes_on.set()
        for each in anns:
            assert (await ended(jobs, each.id, "ann")).status == "completed"


async def test_a_poison_line_ends_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.balancer.jobs.lines.FIRST_PAUSE", 0.001)
    house = House(tmp_path)

    async def answer(line: Line, caller: Caller) -> Answered:
        match line.number:
            case 2:
                return failing(InvalidRequest("`prompt` is bad"))
            case 3:
                raise RuntimeError("a mistake of ours")
            case _:
                return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        data = b"".join([request_line(1), request_line(2), request_line(3), b"poison\n"])
        batch = await ended(jobs, (await created(jobs, data)).id)
        assert (batch.status, batch.num_completed, batch.num_failed) == ("completed", 1, 3)
        assert (jobs.numbers().num_completed, jobs.numbers().num_failed) == (1, 3)
        errors = await content(jobs, batch.error_file)
    told = [(line["response"] or {}).get("status_code") for line in errors]
    assert told == [400, None, None]
    assert [errors[n]["error"]["code"] for n in (1, 2)] == ["internal_error", "invalid_request"]


async def test_what_a_retry_mends_is_no_error(tmp_path: Path) -> None:
    house = House(tmp_path)
    tries: Counter[int] = Counter()

    async def answer(line: Line, caller: Caller) -> Answered:
        tries[line.number] += 1
        house.clock.now += 60.0
        if line.number == 1 and tries[1] < 3:
            return failing(AgentLost("gone"))
        if line.number == 2 and tries[2] < 9:
            return failing(QueueFull("full"))
        if line.number == 3:
            return failing(EngineFailed("broken"))
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        data = b"".join(map(request_line, (1, 2, 3)))
        batch = await created(jobs, data, window=1e6)
        async with asyncio.timeout(HANGS):
            while not (await jobs.batches.find(batch.id, None)).has_ended:
                house.fleet.change()
                house.clock.now += 60.0
                await asyncio.sleep(0.002)
        batch = await ended(jobs, batch.id)
    assert tries == {1: 3, 2: 9, 3: 3}
    assert (batch.num_completed, batch.num_failed) == (2, 1)


async def test_a_batch_is_cancelled_with_what_there_is(tmp_path: Path) -> None:
    house = House(tmp_path)
    is_enough = asyncio.Event()
    cancelled: list[int] = []

    async def answer(line: Line, caller: Caller) -> Answered:
        if line.number > 5:
            is_enough.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(line.number)
                raise
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        id = (await created(jobs, INPUT)).id
        await is_enough.wait()
        assert (await jobs.batches.cancel(id)).status == "cancelling"
        batch = await ended(jobs, id)
        assert (batch.status, batch.num_completed, batch.num_failed) == ("cancelled", 5, 0)
        lines = await content(jobs, batch.output_file)
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(5)]
    assert 1 <= len(cancelled) <= 6


async def test_a_batch_whose_time_is_over_says_so_for_each_line(tmp_path: Path) -> None:
    house = House(tmp_path)

    async def answer(line: Line, caller: Caller) -> Answered:
        if line.number == 3:
            house.clock.now += 100.0
            await asyncio.Event().wait()
        return await echo(line, caller)

    house.answer = answer
    house.fleet.slots = {"m": 1}
    async with house.running() as jobs:
        batch = await ended(jobs, (await created(jobs, INPUT, window=50.0)).id)
        assert batch.status == "expired"
        assert batch.num_completed + batch.num_failed == NUM
        outputs = await content(jobs, batch.output_file)
        errors = await content(jobs, batch.error_file)
    assert {line["error"]["code"] for line in errors} == {"batch_expired"}
    ids = [line["custom_id"] for line in outputs + errors]
    assert sorted(ids) == sorted(f"r{n}" for n in range(NUM))


async def test_an_input_that_cannot_run_is_told(tmp_path: Path) -> None:
    async with House(tmp_path).running() as jobs:
        batch = await ended(jobs, (await created(jobs, request_line(1) * 2)).id)
        assert (batch.status, batch.faults[0].line) == ("failed", 2)
        assert batch.output_file is None


async def test_a_store_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shaky(JobStore):
        num_failures = 3

        async def next_chunk(self, batch: str, after: int) -> Chunk | None:
            if self.num_failures:
                self.num_failures -= 1
                raise StoreAway("connection refused")
            return await super().next_chunk(batch, after)

    monkeypatch.setattr("arriero.balancer.jobs.runner.FIRST_PAUSE", 0.001)
    async with House(tmp_path, Shaky(MemoryStore().database)).running() as jobs:
        batch = await ended(jobs, (await created(jobs, request_line(1))).id)
    assert batch.status == "completed"


async def test_a_store_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(JobStore):
        num_failures = 1

        async def open_batches(self) -> list[SavedBatch]:
            if self.num_failures:
                self.num_failures -= 1
                raise OverflowError("too large")
            return await super().open_batches()

        async def forget_ended(self, keep: int) -> list[str]:
            raise OverflowError("too large")

    monkeypatch.setattr("arriero.balancer.jobs.runner.LONGEST_PAUSE", 0.001)
    async with House(tmp_path, Faulty(MemoryStore().database)).running() as jobs:
        batch = await ended(jobs, (await created(jobs, request_line(1))).id)
    assert batch.status == "completed"
    told = {each.getMessage() for each in caplog.records}
    assert told == {
        "the balancer could not load the open batches and tries again",
        "the balancer could not delete expired files and tries again",
    }


async def test_a_mistake_of_ours_ends_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(JobStore):
        async def next_chunk(self, batch: str, after: int) -> Chunk | None:
            raise RuntimeError("broken")

    async with House(tmp_path, Broken(MemoryStore().database)).running() as jobs:
        batch = await ended(jobs, (await created(jobs, request_line(1))).id)
        assert (batch.status, batch.faults[0].code) == ("failed", "internal_error")
        assert not jobs._runner.runs


async def test_a_key_that_is_gone_ends_its_batches(tmp_path: Path) -> None:
    house = House(tmp_path)
    ann = Caller(name="ann", owner="ann")

    async def answer(line: Line, caller: Caller) -> Answered:
        assert caller.name == "ann"
        if line.number == 2:
            house.callers["ann"] = None
        return await echo(line, caller)

    house.answer = answer
    house.fleet.slots = {"m": 1}
    async with house.running() as jobs:
        batch = await ended(jobs, (await created(jobs, INPUT, caller=ann)).id, "ann")
    assert (batch.status, batch.faults[0].code) == ("cancelled", "unauthorized")
    assert batch.num_completed < 10


async def test_a_batch_that_waits_ends_at_once_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_run, "RECHECK", 3600.0)
    house = House(tmp_path)
    house.callers["ann"] = Caller(name="ann", owner="ann")
    house.fleet.slots = {"m": 0}
    async with house.running() as jobs:
        id = (await created(jobs, INPUT, caller=Caller(name="ann", owner="ann"))).id
        await until(lambda: id in jobs._runner.runs and jobs._runner.num_loaded)
        house.callers["ann"] = None
        jobs.key_ended()
        batch = await ended(jobs, id, "ann")
    assert (batch.status, batch.faults[0].code) == ("cancelled", "unauthorized")


async def test_one_balancer_runs_a_batch_and_the_next_goes_on_where_it_ended(
    tmp_path: Path,
) -> None:
    house, is_half = House(tmp_path), asyncio.Event()
    asked: Counter[int] = Counter()

    async def answer(line: Line, caller: Caller) -> Answered:
        asked[line.number] += 1
        if not is_half.is_set() and asked.total() > NUM // 2:
            is_half.set()
            await asyncio.Event().wait()
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as two:
        async with house.running() as one:
            id = (await created(one, INPUT)).id
            await is_half.wait()
            assert (list(one._runner.runs), list(two._runner.runs)) == ([id], [])
        two._runner.changed()  # as some seconds later
        batch = await ended(two, id)
        lines = await content(two, batch.output_file)
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(NUM)]
    twice = [number for number, times in asked.items() if times > 1]
    assert 1 <= len(twice) <= 6, "what ran when the first one ended"


async def test_a_balancer_stops_what_another_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "RECHECK", 0.01)
    house, is_stopped = House(tmp_path), asyncio.Event()

    async def answer(line: Line, caller: Caller) -> Answered:
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()
        raise AssertionError("it never ends")

    house.answer = answer
    async with house.running() as jobs:
        id = (await created(jobs, INPUT)).id
        await until(lambda: jobs.numbers().num_running)
        later = house.clock.now + 1e6
        assert await house.store.claim_batch(id, "another", later, 2 * later) is not None
        await is_stopped.wait()
        await until(lambda: not jobs._runner.runs)
        assert not (await jobs.batches.find(id, None)).has_ended


async def test_a_batch_of_the_former_schema_goes_on(tmp_path: Path) -> None:
    """Each of its chunks has a lease of its own, which nobody looks at any more."""
    database, is_half = MemoryStore().database, asyncio.Event()
    house = House(tmp_path, JobStore(database))
    asked: Counter[int] = Counter()

    async def answer(line: Line, caller: Caller) -> Answered:
        asked[line.number] += 1
        if not is_half.is_set() and asked.total() > NUM // 2:
            is_half.set()
            await asyncio.Event().wait()
        return await echo(line, caller)

    house.answer = answer
    async with house.running() as jobs:
        id = (await created(jobs, INPUT)).id
        await is_half.wait()
    async with database.transaction() as connection:
        for column in ("runner TEXT DEFAULT 'gone'", "leased_until DOUBLE DEFAULT 1e18"):
            await connection.execute(text(f"ALTER TABLE batch_chunks ADD COLUMN {column}"))
    async with house.running() as jobs:
        batch = await ended(jobs, id)
        lines = await content(jobs, batch.output_file)
    assert [line["custom_id"] for line in lines] == [f"r{n}" for n in range(NUM)]
    assert asked.total() < NUM + 10


async def test_files_expire(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.running() as jobs:
        batch = await ended(jobs, (await created(jobs, request_line(1))).id)
    house.clock.now += 31 * 86_400
    content = tmp_path / "files" / (batch.output_file or "")
    async with house.running() as jobs, asyncio.timeout(HANGS):
        while True:
            if await house.store.file(content.name) is None and not content.exists():
                break
            await asyncio.sleep(0.002)
