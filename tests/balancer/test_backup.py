"""A store and its files, copied while they are in use, and put back."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from arriero.balancer.backup import BackupError, back_up, copy_database, restore
from arriero.balancer.store.records import Persist, SavedState
from arriero.balancer.store.store import open_store
from arriero.balancer.store.url import parse_store_url


class Place:
    """A store with one file, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "state.db"
        self.files = folder / "files"
        self.backup = folder / "backup.tar"

    async def fill(self) -> None:
        self.put("files/file-1", b"question")
        self.put("batches/batch_1/0.outputs", b"answer")
        self.put("files/file-2.aa.part", b"unfinished")
        store = await open_store(parse_store_url(f"sqlite:///{self.database}"))
        await store.save_desired_state(Persist(0, "state"))
        await store.close()

    def put(self, name: str, data: bytes) -> None:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    await place.fill()
    return place


async def test_what_was_backed_up_is_restored(place: Place, tmp_path: Path) -> None:
    manifest = back_up(place.database, place.files, place.backup)
    assert (manifest.num_files, manifest.num_bytes) == (2, len(b"questionanswer"))
    other = Place(tmp_path / "other")
    other.database.parent.mkdir()
    assert restore(place.backup, other.database, other.files) == manifest
    assert (other.files / "files/file-1").read_bytes() == b"question"
    assert (other.files / "batches/batch_1/0.outputs").read_bytes() == b"answer"
    assert not list(other.files.rglob("*.part"))
    store = await open_store(parse_store_url(f"sqlite:///{other.database}"))
    assert await store.load_desired_state() == SavedState(1, "state")
    await store.close()
    assert sorted(each.name for each in (tmp_path / "other").iterdir()) == ["files", "state.db"]


async def test_files_beside_another_database(place: Place, tmp_path: Path) -> None:
    manifest = back_up(None, place.files, place.backup)
    assert (manifest.num_files, manifest.has_database) == (2, False)
    other = Place(tmp_path / "other")
    other.database.parent.mkdir()
    with pytest.raises(BackupError, match="no database: restore it with --state postgresql"):
        restore(place.backup, other.database, other.files)
    assert restore(place.backup, None, other.files) == manifest
    assert (other.files / "batches/batch_1/0.outputs").read_bytes() == b"answer"
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["files"]
    with pytest.raises(BackupError, match="there are files in"):
        restore(place.backup, None, other.files)
    with pytest.raises(BackupError, match="--files: there is no folder"):
        restore(place.backup, None, tmp_path / "none/files")
    with pytest.raises(BackupError, match="no folder of a balancer's files"):
        back_up(None, tmp_path / "none", place.backup)
    back_up(place.database, place.files, place.backup)
    with pytest.raises(BackupError, match="is of SQLite: restore it with --state sqlite"):
        restore(place.backup, None, tmp_path / "third")


async def test_while_it_is_written(place: Place, tmp_path: Path) -> None:
    """A store that is open, with what is only in its write-ahead log."""
    store = await open_store(parse_store_url(f"sqlite:///{place.database}"))
    await store.save_desired_state(Persist(1, "newer"))
    back_up(place.database, place.files, place.backup)
    await store.close()
    other = tmp_path / "other.db"
    restore(place.backup, other, tmp_path / "other-files")
    store = await open_store(parse_store_url(f"sqlite:///{other}"))
    assert await store.load_desired_state() == SavedState(2, "newer")
    await store.close()


def test_files_that_come_before_the_database_is_copied(place: Place) -> None:
    def copying(database: Path, target: Path) -> None:
        place.put("files/late", b"late")
        (place.files / "files/file-1").unlink()
        copy_database(database, target)
        place.put("files/too-late.part", b"")

    manifest = back_up(place.database, place.files, place.backup, copy=copying)
    with tarfile.open(place.backup) as archive:
        names = archive.getnames()
    assert "files/files/late" in names
    assert manifest.num_files == 3, "what went was copied before"


def test_nothing_is_overwritten(place: Place, tmp_path: Path) -> None:
    back_up(place.database, place.files, place.backup)
    with pytest.raises(BackupError, match="is there; move it away first"):
        restore(place.backup, place.database, tmp_path / "other")
    with pytest.raises(BackupError, match="there are files in"):
        restore(place.backup, tmp_path / "other.db", place.files)
    with pytest.raises(BackupError, match="there is no database"):
        back_up(tmp_path / "none.db", place.files, place.backup)
    with pytest.raises(BackupError, match="there is no folder"):
        back_up(place.database, place.files, tmp_path / "none" / "b.tar")


def tar(path: Path, **entries: bytes) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


MANIFEST = (
    b'{"format": 1, "version": "1", "created_at": 1, "has_database": true, '
    b'"num_files": 0, "num_bytes": 0}'
)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({}, "no whole backup"),
        ({"manifest.json": MANIFEST}, "no whole backup"),
        ({"state.db": b"x" * 100}, "no whole backup"),
        ({"manifest.json": b"{}"}, "no backup of Arriero"),
        ({"manifest.json": MANIFEST.replace(b"1", b"2", 1)}, "of a newer version"),
        ({"files/../../x": b""}, "it has 'files/../../x'"),
        ({"/etc/passwd": b""}, "it has '/etc/passwd'"),
        ({"state.db": b"x" * 100, "manifest.json": MANIFEST}, "cannot be read"),
        ({"state.db": b"", "files/files/a": b"", "manifest.json": MANIFEST}, "1 files, not 0"),
    ],
)
def test_what_is_no_backup(tmp_path: Path, entries: dict[str, bytes], why: str) -> None:
    source = tar(tmp_path / "backup.tar", **entries)
    with pytest.raises(BackupError, match=re.escape(why)):
        restore(source, tmp_path / "state.db", tmp_path / "files")
    assert [each.name for each in tmp_path.iterdir()] == ["backup.tar"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "backup.tar").write_bytes(b"no tar")
    with pytest.raises(BackupError, match="cannot be restored"):
        restore(tmp_path / "backup.tar", tmp_path / "state.db", tmp_path / "files")
