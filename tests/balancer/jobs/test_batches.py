"""Batches as callers see them."""

from itertools import count
from pathlib import Path

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.jobs import batches as batches_module
from arriero.balancer.jobs.batch import NewBatch
from arriero.balancer.jobs.batches import Batches
from arriero.balancer.jobs.files_place import WorkPlace
from arriero.shared.errors import InvalidRequest, NotFound, Overloaded
from tests.balancer.jobs.builders import URL, House, created, request_line, uploaded

pytestmark = pytest.mark.usefixtures("closes_stores")

ANN = Caller(name="ann", owner="ann", address="127.0.0.9")
BEN = Caller(name="ben", owner="ben")


async def test_one_is_made_found_and_listed(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path / "work") as work:
        house = House(tmp_path)
        jobs = house.jobs(work)
        made = count(1)
        jobs.batches = Batches(
            house.store, jobs.files, on_change=lambda: next(made), clock=house.clock
        )
        first = await created(jobs, request_line(1), caller=ANN, window=60.0)
        second = await created(jobs, request_line(1), caller=ANN)
        assert next(made) == 3
        assert (first.status, first.caller.address) == ("validating", "127.0.0.9")
        assert first.expires_at == first.created_at + 60.0
        assert await jobs.batches.find(first.id, "ann") == first
        assert await jobs.batches.page("ann", after=None, limit=9) == [second, first]
        assert await jobs.batches.page("ann", after=second.id, limit=9) == [first]
        assert await jobs.batches.newest(1) == [second]
        assert await jobs.batches.reader_of(first.input_file) == first.id
        assert await jobs.batches.reader_of("file-none") is None


async def test_nobody_finds_anothers(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        batch = await created(jobs, request_line(1), caller=ANN)
        for owner in ("bob", None):
            with pytest.raises(NotFound, match="no batch has the id"):
                await jobs.batches.find(batch.id, owner)
            assert not await jobs.batches.has(batch.id, owner)
            assert await jobs.batches.page(owner, after=None, limit=9) == []
        wanted = NewBatch(
            input_file=batch.input_file, endpoint=URL, window=1.0, completion_window="1s"
        )
        with pytest.raises(NotFound) as error:
            await jobs.batches.create(wanted, Caller(name="bob", owner="bob"))
        assert error.value.field == "input_file_id"


async def test_results_are_no_input(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        async with jobs.files.upload(ANONYMOUS) as upload:
            file = await upload.keep(name="o", purpose="batch_output", expires_after=None)
        wanted = NewBatch(input_file=file.id, endpoint=URL, window=1.0, completion_window="1s")
        with pytest.raises(InvalidRequest, match="`input_file_id`"):
            await jobs.batches.create(wanted, Caller())


async def test_only_so_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_OPEN", 1)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        await created(jobs, request_line(1))
        with pytest.raises(Overloaded):
            await created(jobs, request_line(1))


async def test_one_caller_leaves_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at another balancer over the same store."""
    monkeypatch.setattr(batches_module, "MAX_OPEN", 6)
    with WorkPlace.take(tmp_path / "a") as work, WorkPlace.take(tmp_path / "b") as other_work:
        house = House(tmp_path)
        jobs, others = house.jobs(work), house.jobs(other_work)
        for _ in range(3):
            batch = await created(jobs, request_line(1), caller=ANN)
        for each in (jobs, others):
            with pytest.raises(Overloaded, match="3 of them from this caller; all callers share 6"):
                await created(each, request_line(1), caller=ANN)
        assert await created(others, request_line(1), caller=BEN)
        assert others.batches.open.num_refused["share"] == 1
        await jobs.batches.change(batch.id, lambda each: each, is_open=False)
        assert await created(others, request_line(1), caller=BEN)


async def test_changes_of_others_are_not_lost(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        id = (await created(jobs, request_line(1))).id
        saved = await house.store.batch(id)
        assert saved is not None
        tries = []
        load = house.store.batch

        async def stale(id: str) -> object:
            tries.append(id)
            return saved if len(tries) == 1 else await load(id)

        await jobs.batches.change(id, lambda batch: batch.begun(3, 1.0))
        house.store.batch = stale  # type: ignore[method-assign,assignment]
        batch = await jobs.batches.change(id, lambda batch: batch.cancelling(2.0))
        assert len(tries) == 2
        assert (batch.status, batch.num_lines) == ("cancelling", 3)


async def test_an_upload_that_is_read_by_a_batch(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        file = await uploaded(jobs, b"x")
        assert await jobs.batches.reader_of(file.id) is None
