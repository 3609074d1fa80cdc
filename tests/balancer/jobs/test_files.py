"""Files: written as they come, within bounds, each its owner's."""

import os
import time
from pathlib import Path

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.jobs import files as files_module
from arriero.balancer.jobs.blobs import LocalBlobs
from arriero.balancer.jobs.files import AT_ONCE, FORGOTTEN, Files, delete_orphans
from arriero.balancer.jobs.files_place import FileLimits, WorkPlace
from arriero.balancer.store.job_records import FileTotals, SavedBatch, SavedFile
from arriero.shared.errors import NotFound, Overloaded, RequestTooLarge
from tests.balancer.jobs.builders import House, owned, uploaded
from tests.balancer.stores import MemoryStore

pytestmark = pytest.mark.usefixtures("closes_stores")


async def read(files: Files, id: str, start: int, stop: int) -> bytes:
    file = await files.find(id, None)
    return b"".join([piece async for piece in files.read(file, start, stop)])


def nothing_left(folder: Path) -> bool:
    return not list((folder / "files").iterdir())


async def test_a_file_is_kept_read_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "PIECE", 4)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        files = jobs.files
        file = await uploaded(jobs, b"0123456789")
        assert (file.num_bytes, file.expires_at) == (10, None)
        assert await read(files, file.id, 0, 10) == b"0123456789"
        assert await read(files, file.id, 3, 9) == b"345678"
        assert files.totals == FileTotals(num_files=1, num_bytes=10)
        again = House(tmp_path, files._store).jobs(work).files
        await again.start()
        assert again.totals == files.totals
        await files.delete(file.id, None)
        assert files.totals == FileTotals()
        with pytest.raises(NotFound):
            await files.find(file.id, None)
    assert nothing_left(tmp_path)


async def test_files_are_their_owners(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        file = await uploaded(jobs, b"x", "ann")
        assert await jobs.files.find(file.id, "ann") == file
        for owner in ("bob", None):
            with pytest.raises(NotFound):
                await jobs.files.find(file.id, owner)
            with pytest.raises(NotFound):
                await jobs.files.delete(file.id, owner)
            assert not await jobs.files.has(file.id, owner)


async def test_one_whose_time_is_over_is_gone_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        files = house.jobs(work).files
        async with files.upload(ANONYMOUS) as upload:
            await upload.write(b"x")
            file = await upload.keep(name="n", purpose="batch", expires_after=60.0)
        assert file.expires_at == file.created_at + 60.0
        assert await files.delete_expired() == 0
        house.clock.now += 61.0
        with pytest.raises(NotFound):
            await files.find(file.id, None)
        assert await files.delete_expired() == 1
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("limits", "words"),
    [(FileLimits(max_file=5), "--max-file-size"), (FileLimits(max_total=5), "--files-limit")],
)
async def test_what_is_too_large_leaves_nothing(
    tmp_path: Path, limits: FileLimits, words: str
) -> None:
    house = House(tmp_path)
    house.limits = limits
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        with pytest.raises(RequestTooLarge, match=words) as error:
            await uploaded(jobs, b"123456")
        assert error.value.field == "file"
        assert jobs.files.uploads.total == jobs.files.bytes.total == 0
        await uploaded(jobs, b"12345")


ANN, BEN = owned("ann"), owned("ben")


async def test_uploads_at_once_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_UPLOADS", 4)
    with WorkPlace.take(tmp_path / "work") as work:
        files = House(tmp_path).jobs(work).files
        async with files.upload(ANN), files.upload(ANN):
            with pytest.raises(Overloaded, match="2 of them from this caller; all callers share 4"):
                await files.upload(ANN).__aenter__()
            async with files.upload(BEN):
                pass
        async with files.upload(ANN):
            pass
        assert files.uploads.total == files.counts.total == 0
    assert nothing_left(tmp_path)


async def test_one_owner_leaves_others_room(tmp_path: Path) -> None:
    """Also at another balancer over the same store, and with what comes."""
    house = House(tmp_path)
    house.limits = FileLimits(max_total=100)
    with WorkPlace.take(tmp_path / "a") as work, WorkPlace.take(tmp_path / "b") as other_work:
        jobs, others = house.jobs(work), house.jobs(other_work)
        await uploaded(jobs, b"x" * 40, "ann")
        house.clock.now += 1.0
        for each in (jobs, others):
            with pytest.raises(RequestTooLarge, match="--files-limit"):
                await uploaded(each, b"x" * 20, "ann")
        async with others.files.upload(BEN) as coming:
            await coming.write(b"x" * 30)
            with pytest.raises(RequestTooLarge, match="--files-limit"):
                await uploaded(others, b"x" * 20, "col")
            file = await coming.keep(name="n", purpose="batch", expires_after=None)
        assert others.files.totals == FileTotals(num_files=2, num_bytes=70)
        await others.files.delete(file.id, "ben")
        await uploaded(others, b"x" * 20, "col")
        await others.files.start()
        assert others.files.totals == FileTotals(num_files=2, num_bytes=60)


async def test_files_that_others_delete_are_not_missed(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "a") as work, WorkPlace.take(tmp_path / "b") as other_work:
        jobs, others = house.jobs(work), house.jobs(other_work)
        file = await uploaded(jobs, b"x", "ann")
        async with others.files.upload(ANN) as coming:
            await coming.write(b"xx")
            await others.files.delete(file.id, "ann")
            assert others.files.totals == FileTotals()
        assert others.files.bytes.total == others.files.counts.total == 0


async def test_the_number_of_files_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MAX_FILES", 4)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = House(tmp_path).jobs(work)
        for _ in range(2):
            await uploaded(jobs, b"x", "ann")
        with pytest.raises(
            RequestTooLarge, match="2 of them from this caller; all callers share 4"
        ):
            await uploaded(jobs, b"x", "ann")
        await uploaded(jobs, b"x", "ben")


NOW = time.time()
OLD = NOW - FORGOTTEN - 1


class Place:
    """A folder of files, and a store that outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = LocalBlobs(folder)
        self.store = MemoryStore().jobs
        self.store.is_lasting = True

    def blob(self, name: str, written_at: float = OLD) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (written_at, written_at))

    async def file(self, id: str) -> None:
        """With its row."""
        self.blob(f"files/{id}")
        await self.store.add_file(
            SavedFile(id=id, owner=None, name="n", purpose="batch", num_bytes=1, created_at=OLD)
        )

    async def batch(self, id: str, *, is_open: bool) -> None:
        await self.store.save_batch(
            SavedBatch(
                id=id, owner=None, created_at=OLD, revision=1, is_open=is_open, document="{}"
            )
        )

    def left(self) -> set[str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix() for path in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_what_nothing_refers_to_goes(place: Place) -> None:
    for number in range(AT_ONCE + 1):
        await place.file(f"file-{number}")
    kept = place.left()
    for name in ("files/file-lost", "files/file-x.0.part", "batches/batch_gone/0-runner.outputs"):
        place.blob(name)
    await place.batch("batch_ended", is_open=False)
    place.blob("batches/batch_ended/0-runner.outputs")
    assert await delete_orphans(place.store, place.blobs, NOW) == 3
    assert place.left() == kept


async def test_what_may_be_wanted_stays(place: Place) -> None:
    await place.file("file-1")
    await place.batch("batch_open", is_open=True)
    place.blob("batches/batch_open/0-runner.outputs")
    place.blob("files/file-just-committed", NOW - FORGOTTEN + 1)
    place.blob("files/file-coming.0.part", NOW - FORGOTTEN + 1)
    for name in ("files/notes.txt", "mine/a.part", "state.db", "work/1/name"):
        place.blob(name)  # whoever put it there
    before = place.left()
    assert await delete_orphans(place.store, place.blobs, NOW) == 0
    assert place.left() == before


async def test_files_of_another_store_stay(place: Place) -> None:
    place.blob("files/file-1")
    place.blob("batches/batch_1/0-runner.outputs")
    before = place.left()
    assert await delete_orphans(place.store, place.blobs, NOW) == 0  # as with a wrong --state
    await place.file("file-2")
    place.store.is_lasting = False
    assert await delete_orphans(place.store, place.blobs, NOW) == 0
    assert place.left() == before | {"files/file-2"}
