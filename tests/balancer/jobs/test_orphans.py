"""Bytes that nothing refers to go; what is referred to, young or another store's stays."""

import os
import time
from pathlib import Path

import pytest

from arriero.balancer.jobs.blobs.local import LocalBlobs
from arriero.balancer.jobs.orphans import AT_ONCE, FORGOTTEN, sweep
from arriero.balancer.store.job_records import SavedBatch, SavedFile
from tests.balancer.stores import MemoryStore

pytestmark = pytest.mark.usefixtures("closes_stores")

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
    assert await sweep(place.store, place.blobs, NOW) == 3
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
    assert await sweep(place.store, place.blobs, NOW) == 0
    assert place.left() == before


async def test_files_of_another_store_stay(place: Place) -> None:
    place.blob("files/file-1")
    place.blob("batches/batch_1/0-runner.outputs")
    before = place.left()
    assert await sweep(place.store, place.blobs, NOW) == 0  # as with a wrong --state
    await place.file("file-2")
    place.store.is_lasting = False
    assert await sweep(place.store, place.blobs, NOW) == 0
    assert place.left() == before | {"files/file-2"}
