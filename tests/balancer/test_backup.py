"""A store and its files, copied while they are in use, and put back."""

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from arriero.balancer.backup import BackupError, back_up, copy_database, restore
from arriero.balancer.jobs.files_place import FilesPlace, open_blobs
from arriero.balancer.jobs.remote_blobs import READ_AT_ONCE
from arriero.balancer.store.job_records import SavedFile
from arriero.balancer.store.records import Persist, SavedSession, SavedState
from arriero.balancer.store.store import open_store
from arriero.balancer.store.url import parse_store_url
from tests.balancer.jobs.contract import read, write

SESSION = SavedSession(id="d", name="ada", digest="k", expires_at=9e9)


class Place:
    """A store with one file, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "state.db"
        self.files = folder / "files"
        self.place = FilesPlace(self.files)
        self.backup = folder / "backup.tar"

    async def fill(self) -> None:
        self.put("files/file-1", b"question")
        self.put("batches/batch_1/0.outputs", b"answer")
        self.put("files/file-2.aa.part", b"unfinished")
        store = await open_store(parse_store_url(f"sqlite:///{self.database}"))
        await store.save_desired_state(Persist(0, "state"))
        await store.save_session(SESSION, now=0.0)
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
    manifest = back_up(place.database, place.place, place.backup)
    assert (manifest.num_files, manifest.num_bytes) == (2, len(b"questionanswer"))
    other = Place(tmp_path / "other")
    other.database.parent.mkdir()
    assert restore(place.backup, other.database, other.place) == manifest
    assert (other.files / "files/file-1").read_bytes() == b"question"
    assert (other.files / "batches/batch_1/0.outputs").read_bytes() == b"answer"
    assert not list(other.files.rglob("*.part"))
    store = await open_store(parse_store_url(f"sqlite:///{other.database}"))
    assert await store.load_desired_state() == SavedState(1, "state")
    assert await store.load_sessions() == [], "nobody is logged in again"
    await store.close()
    assert sorted(each.name for each in (tmp_path / "other").iterdir()) == ["files", "state.db"]


async def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.backup.with_name(".backup.tar.part").touch(0o644)
    store = await open_store(parse_store_url(f"sqlite:///{place.database}"))
    await store.close()
    writer = open_blobs(place.place).create("files/file-1")
    writer.write(b"question")
    writer.commit()
    back_up(place.database, place.place, place.backup)
    other = Place(tmp_path / "other")
    other.database.parent.mkdir()
    restore(place.backup, other.database, other.place)
    paths = (place.database, place.backup, place.files, other.database, other.files)
    assert [oct(path.stat().st_mode)[-3:] for path in paths] == ["600", "600", "700", "600", "700"]


async def test_files_beside_another_database(place: Place, tmp_path: Path) -> None:
    manifest = back_up(None, place.place, place.backup)
    assert (manifest.num_files, manifest.has_database) == (2, False)
    other = Place(tmp_path / "other")
    other.database.parent.mkdir()
    with pytest.raises(BackupError, match="no database: restore it with --state postgresql"):
        restore(place.backup, other.database, other.place)
    assert restore(place.backup, None, other.place) == manifest
    assert (other.files / "batches/batch_1/0.outputs").read_bytes() == b"answer"
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["files"]
    with pytest.raises(BackupError, match="there are files in"):
        restore(place.backup, None, other.place)
    with pytest.raises(BackupError, match="--files: there is no folder"):
        restore(place.backup, None, FilesPlace(tmp_path / "none/files"))
    with pytest.raises(BackupError, match="there are no files of a balancer in"):
        back_up(None, FilesPlace(tmp_path / "none"), place.backup)
    assert not (tmp_path / "none").exists()
    back_up(place.database, place.place, place.backup)
    with pytest.raises(BackupError, match="is of SQLite: restore it with --state sqlite"):
        restore(place.backup, None, FilesPlace(tmp_path / "third"))


async def test_while_it_is_written(place: Place, tmp_path: Path) -> None:
    """A store that is open, with what is only in its write-ahead log."""
    store = await open_store(parse_store_url(f"sqlite:///{place.database}"))
    await store.save_desired_state(Persist(1, "newer"))
    back_up(place.database, place.place, place.backup)
    await store.close()
    other = tmp_path / "other.db"
    restore(place.backup, other, FilesPlace(tmp_path / "other-files"))
    store = await open_store(parse_store_url(f"sqlite:///{other}"))
    assert await store.load_desired_state() == SavedState(2, "newer")
    await store.close()


def test_files_that_come_before_the_database_is_copied(place: Place) -> None:
    def copying(database: Path, target: Path) -> None:
        place.put("files/late", b"late")
        (place.files / "files/file-1").unlink()
        copy_database(database, target)
        place.put("files/too-late.part", b"")

    manifest = back_up(place.database, place.place, place.backup, copy=copying)
    with tarfile.open(place.backup) as archive:
        names = archive.getnames()
    assert "files/files/late" in names
    assert manifest.num_files == 3, "what went was copied before"


def test_nothing_is_overwritten(place: Place, tmp_path: Path) -> None:
    back_up(place.database, place.place, place.backup)
    with pytest.raises(BackupError, match="is there; move it away first"):
        restore(place.backup, place.database, FilesPlace(tmp_path / "other"))
    with pytest.raises(BackupError, match="there are files in"):
        restore(place.backup, tmp_path / "other.db", place.place)
    with pytest.raises(BackupError, match="there is no database"):
        back_up(tmp_path / "none.db", place.place, place.backup)
    with pytest.raises(BackupError, match="there is no folder"):
        back_up(place.database, place.place, tmp_path / "none" / "b.tar")


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
WITH_A_FILE = MANIFEST.replace(b'_files": 0', b'_files": 1').replace(b'_bytes": 0', b'_bytes": 3')


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
        (
            {"state.db": b"", "files/files/a": b"xy", "manifest.json": WITH_A_FILE},
            "have 2 bytes, not 3",
        ),
    ],
)
def test_what_is_no_backup(tmp_path: Path, entries: dict[str, bytes], why: str) -> None:
    source = tar(tmp_path / "backup.tar", **entries)
    with pytest.raises(BackupError, match=re.escape(why)):
        restore(source, tmp_path / "state.db", FilesPlace(tmp_path / "files"))
    assert [each.name for each in tmp_path.iterdir()] == ["backup.tar"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "backup.tar").write_bytes(b"no tar")
    with pytest.raises(BackupError, match="is no whole backup of Arriero"):
        restore(tmp_path / "backup.tar", tmp_path / "state.db", FilesPlace(tmp_path / "files"))


def test_an_entry_that_is_there_twice_or_holds_holes(tmp_path: Path) -> None:
    source = tmp_path / "backup.tar"
    entry = tarfile.TarInfo("state.db")
    with tarfile.open(source, "w") as archive:
        archive.addfile(entry)
        archive.addfile(entry)
    with pytest.raises(BackupError, match=r"it has state\.db twice"):
        restore(source, tmp_path / "state.db", FilesPlace(tmp_path / "files"))
    entry.type = tarfile.GNUTYPE_SPARSE
    with tarfile.open(source, "w") as archive:
        archive.addfile(entry)
    with pytest.raises(BackupError, match="is no file"):
        restore(source, tmp_path / "state.db", FilesPlace(tmp_path / "files"))


class Bucket(MemoryFileSystem):
    """Object storage of this process: one of its files goes while it is read, or takes nothing."""

    protocol = "faulty"
    cachable = False
    going = ""
    refused = ""

    def _open(self, path: str, mode: str = "rb", **options: object) -> MemoryFile:
        if self.refused and mode == "wb" and path.endswith(self.refused):
            raise PermissionError("access denied")
        file = super()._open(path, mode, **options)
        return Going(file.getvalue()) if self.going and path.endswith(self.going) else file

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("faulty://"))


class Going(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 0:
            raise FileNotFoundError("the specified key does not exist")
        return super().read(size)


@pytest.fixture
def bucket() -> Iterator[FilesPlace]:
    fsspec.register_implementation("faulty", Bucket, clobber=True)
    place = FilesPlace(url="faulty://bucket/folder")
    for name in ("a", "b", "c"):
        write(open_blobs(place), f"files/{name}", name.encode() * 3 * READ_AT_ONCE)
    yield place
    Bucket.store.clear()
    Bucket.going = Bucket.refused = ""


def test_a_file_that_goes_while_it_is_copied(bucket: FilesPlace, tmp_path: Path) -> None:
    """The head of its entry is in the archive by then, and a part of it."""
    Bucket.going = "/b"
    assert back_up(None, bucket, tmp_path / "backup.tar").num_files == 2
    restore(tmp_path / "backup.tar", None, FilesPlace(tmp_path / "restored"))
    files = {path.name: path.read_bytes() for path in (tmp_path / "restored/files").iterdir()}
    assert files == {name: name.encode() * 3 * READ_AT_ONCE for name in ("a", "c")}


def test_a_bucket_that_refuses_a_file_has_none_of_them(bucket: FilesPlace, tmp_path: Path) -> None:
    backup, target = tmp_path / "backup.tar", FilesPlace(url="faulty://bucket/other")
    back_up(None, bucket, backup)
    Bucket.refused = "/c"
    with pytest.raises(BackupError, match=r"^--files: files/c: access denied$"):
        restore(backup, None, target)
    assert open_blobs(target).names("files") == [], "nothing is in the way of the next try"
    Bucket.refused = ""
    restore(backup, None, target)
    assert read(open_blobs(target), "files/c") == b"c" * 3 * READ_AT_ONCE


async def test_another_balancers_files_are_refused(place: Place, tmp_path: Path) -> None:
    """`--files` was forgotten, say: the store knows files, and none of them is there."""
    store = await open_store(parse_store_url(f"sqlite:///{place.database}"))
    file = SavedFile(id="file-9", owner=None, name="a", purpose="batch", num_bytes=1, created_at=1)
    await store.jobs.add_file(file)
    with pytest.raises(BackupError, match=r"none of the store's 1 files is in .*give the same"):
        back_up(place.database, place.place, place.backup)
    assert not place.backup.exists()
    place.put("files/file-9", b"x")
    back_up(place.database, place.place, place.backup)
    await store.close()
