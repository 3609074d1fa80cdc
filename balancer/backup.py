"""Backs up a balancer's store and files to one tar file, and restores both.

The balancer may run during the backup. SQLite's online backup copies the database as of one
moment. Each file has a name of its own and is written only once. The backup copies the existing
files first, then the database, and then the files that were added in between. The backup therefore
has every file that the copied database knows, except files deleted in between.

A tar file has `manifest.json`, `state.db`, and `files/…` as stored in `--files`, which may be a
folder or a bucket. A backup of one kind of storage can be restored to the other. With PostgreSQL
there is no `state.db`: `pg_dump` copies the database first, and the backup then copies the files.

Files are copied in pieces; only their names and sizes are in memory. The archive does not contain
the location of the files or its credentials. Only the owner may read the written files.
"""

import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from .jobs.blobs import ROOTS, UNFINISHED, BlobGone, Blobs, BlobsAway, LocalBlobs, blob_of
from .jobs.files import PIECE
from .jobs.files_place import FilesPlace, open_blobs

FORMAT = 1
MAX_MANIFEST = 2**16


class BackupError(Exception):
    """A backup or restoration is impossible. The message gives the reason and advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of a backup. `created_at` is in seconds since 1970.

    If `has_database` is true, the store is SQLite. Otherwise the store is in PostgreSQL, and the
    backup has only the files.
    """

    format: int
    version: str
    created_at: float
    has_database: bool
    num_files: int
    num_bytes: int


def _write(
    database: Path | None,
    place: FilesPlace,
    part: Path,
    copy: Callable[[Path, Path], None],
    now: float,
) -> Manifest:
    blobs = _opened(place)
    sizes: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory(dir=part.parent) as folder,
        open(part, "wb", opener=_private) as raw,
        tarfile.open(fileobj=raw, mode="w") as archive,
    ):
        _add_new(archive, raw, blobs, sizes)
        if database is None and not sizes:
            raise BackupError(f"--files: there are no files of a balancer in {place}")
        if database is not None:
            copied = Path(folder) / "state.db"
            copy(database, copied)
            _add_new(archive, raw, blobs, sizes)
            _check_place(copied, sizes, place)
            archive.add(copied, "state.db", filter=_anonymous)
        manifest = Manifest(
            format=FORMAT,
            version=version("arriero"),
            created_at=now,
            has_database=database is not None,
            num_files=len(sizes),
            num_bytes=sum(sizes.values()),
        )
        body = json.dumps(asdict(manifest)).encode()
        archive.addfile(_entry("manifest.json", len(body), now), io.BytesIO(body))
        archive.close()
        raw.flush()
        os.fsync(raw.fileno())
    return manifest


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _entry(name: str, size: int, now: float) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = size, int(now)
    return entry


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the entry without the user's name."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _opened(place: FilesPlace) -> Blobs:
    """Open the files without creating a folder. Only a balancer creates the folder."""
    if place.folder is not None:
        return LocalBlobs(place.folder)
    try:
        return open_blobs(place)
    except BlobsAway as error:
        raise BackupError(f"--files: {error}") from error


def _add_new(archive: tarfile.TarFile, raw: BinaryIO, blobs: Blobs, sizes: dict[str, int]) -> None:
    """Copy the files that `sizes` lacks, and add their sizes to `sizes`."""
    found = {name: size for root in ROOTS for name, size in blobs.sizes(root).items()}
    for name in sorted(found.keys() - sizes.keys()):
        start = archive.offset
        try:
            _add(archive, blobs, name, found[name])
        except BlobGone:  # its batch has ended, say; maybe half of it is in the archive
            archive.offset = start
            raw.seek(start)
            raw.truncate()
        else:
            sizes[name] = found[name]


def _add(archive: tarfile.TarFile, blobs: Blobs, name: str, size: int) -> None:
    with blobs.open(name) as file:
        try:
            archive.addfile(_entry(f"files/{name}", size, time.time()), file)
        except OSError as error:
            raise BackupError(f"{name} cannot be copied: {error}") from error


def _check_place(database: Path, sizes: dict[str, int], place: FilesPlace) -> None:
    """Refuse a place that has no file of the store, because the place belongs to another store."""
    with closing(sqlite3.connect(database)) as connection:
        known = [id for (id,) in connection.execute("SELECT id FROM files")]
    if known and not any(blob_of(id) in sizes for id in known):
        raise BackupError(
            f"--files: none of the store's {len(known)} files is in {place}; give the same "
            "--files as the balancer's"
        )


def copy_database(database: Path, copy: Path) -> None:
    """Copy the database as of one moment while others write to the database.

    Raises `BackupError`.
    """
    copy.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            with suppress(sqlite3.OperationalError):  # a store from before has no such table
                target.execute("DELETE FROM dashboard_sessions")  # who logged out stays out
                target.commit()
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise BackupError(f"--state: {database} cannot be copied: {error}") from error


def back_up(
    database: Path | None,
    place: FilesPlace,
    target: Path,
    *,
    copy: Callable[[Path, Path], None] = copy_database,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Write a backup to `target`, which is unchanged after an error. Raises `BackupError`.

    If `database` is `None`, the backup has only the files of a store in PostgreSQL.
    """
    if database is not None and not database.is_file():
        raise BackupError(f"--state: there is no database {database}")
    with _unfinished(target) as part, _told():
        manifest = _write(database, place, part, copy, clock())
        part.replace(target)
        _sync(target.absolute().parent)
    return manifest


def restore(source: Path, database: Path | None, place: FilesPlace) -> Manifest:
    """Restore `database` and the files of a backup. Neither may exist. Raises `BackupError`.

    The whole backup is checked before anything is written. The database is written last, so a
    balancer that starts during the restoration finds no database. If `database` is `None`, the
    backup must have only files.
    """
    if database is not None and database.exists():
        raise BackupError(f"--state: {database} is there; move it away first")
    for flag, path in (("--state", database), ("--files", place.folder if not database else None)):
        if path is not None and not (parent := path.absolute().parent).is_dir():
            raise BackupError(f"{flag}: there is no folder {parent}")
    blobs = _opened(place)
    with _told():
        if any(blobs.sizes(root) for root in ROOTS):
            raise BackupError(f"--files: there are files in {place}; move them away first")
        try:
            with tempfile.TemporaryDirectory(dir=database and database.absolute().parent) as folder:
                copied = Path(folder) / "state.db"
                manifest = _look_through(source, copied)
                _check_kind(source, manifest, database)
                _put_files(source, blobs)
                if database is not None:
                    copied.replace(database)
                    _sync(database.absolute().parent)
                return manifest
        except tarfile.TarError as error:
            raise BackupError(f"{source} is no whole backup of Arriero: {error}") from error
        except OSError as error:
            why = error.strerror or error
            raise BackupError(f"{source} cannot be restored: {why}") from error


@contextmanager
def _told() -> Iterator[None]:
    """Return a context that turns errors of the files' storage into `BackupError`."""
    try:
        yield
    except BlobsAway as error:
        raise BackupError(f"--files: {error}") from error


def _check_kind(source: Path, manifest: Manifest, database: Path | None) -> None:
    """Refuse a backup of another kind of store."""
    if manifest.has_database and database is None:
        raise BackupError(f"{source} is of SQLite: restore it with --state sqlite:///FILE")
    if not manifest.has_database and database is not None:
        raise BackupError(
            f"{source} has the files beside PostgreSQL and no database: restore it with "
            "--state postgresql://…, and the database with pg_restore"
        )


def _entries(source: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    with tarfile.open(source, "r:") as archive:
        for entry in archive:
            is_plain = entry.isfile() and not entry.issparse()
            file = archive.extractfile(entry) if is_plain else None
            if file is None:
                raise BackupError(
                    f"{source} is no backup of Arriero: {entry.name[:200]} is no file"
                )
            yield entry, file


def _look_through(source: Path, database: Path) -> Manifest:
    """Check that the backup is complete, and unpack the database to `database`."""
    manifest = None
    names: set[str] = set()
    num_bytes = 0
    for entry, file in _entries(source):
        if entry.name == "manifest.json" and entry.size <= MAX_MANIFEST:
            manifest = _manifest(source, file.read())
            continue
        if entry.name in names:
            raise BackupError(f"{source} is no backup of Arriero: it has {entry.name[:200]} twice")
        names.add(_safe(source, entry.name))
        if entry.name == "state.db":
            _unpack(file, database)
        else:
            num_bytes += entry.size
    if manifest is None or manifest.has_database != database.is_file():
        raise BackupError(f"{source} is no whole backup of Arriero: it ends too early")
    num_files = len(names) - manifest.has_database
    if (manifest.num_files, manifest.num_bytes) != (num_files, num_bytes):
        raise BackupError(
            f"{source} has {num_files} files, not {manifest.num_files}, or they have "
            f"{num_bytes} bytes, not {manifest.num_bytes}"
        )
    if manifest.has_database:
        _check(database)
    return manifest


def _unpack(file: IO[bytes], target: Path) -> None:
    with open(target, "xb", opener=_private) as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _put_files(source: Path, blobs: Blobs) -> None:
    """Restore all files. If one file fails, delete the restored files again."""
    done: list[str] = []
    try:
        for entry, file in _entries(source):
            if entry.name.startswith("files/"):
                name = entry.name.removeprefix("files/")
                done.append(name)
                _put(file, blobs, name)
    except BaseException:
        _take_back(done, blobs)
        raise


def _take_back(names: list[str], blobs: Blobs) -> None:
    try:
        for name in names:
            blobs.delete(name)
    except BlobsAway as error:
        raise BackupError(
            f"--files: {error}; files of the backup are left there: delete them first"
        ) from error


def _put(file: IO[bytes], blobs: Blobs, name: str) -> None:
    writer = blobs.create(name)
    try:
        while piece := file.read(PIECE):
            writer.write(piece)
        writer.commit()
    finally:
        writer.abort()


def _manifest(source: Path, body: bytes) -> Manifest:
    try:
        manifest = Manifest(**json.loads(body))
    except (ValueError, TypeError) as error:
        raise BackupError(f"{source} is no backup of Arriero: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"{source} is of a newer version of Arriero ({manifest.version})")
    return manifest


def _safe(source: Path, name: str) -> str:
    """Return the entry's name, or raise `BackupError` if Arriero writes no such names."""
    parts = PurePosixPath(name).parts
    is_ours = parts == ("state.db",) or (
        len(parts) > 2 and parts[0] == "files" and parts[1] in ROOTS
    )
    if not is_ours or ".." in parts:
        raise BackupError(f"{source} is no backup of Arriero: it has {name[:200]!r}")
    return name


def _check(database: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as connection:
            [[found]] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.Error as error:
        raise BackupError(f"the database in the backup cannot be read: {error}") from error
    if found != "ok":
        raise BackupError(f"the database in the backup is broken: {found}")


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """Return a context with a temporary file next to `target`.

    The file is deleted at the end of the context unless the file was renamed.
    """
    if not target.absolute().parent.is_dir():
        raise BackupError(f"there is no folder {target.absolute().parent}")
    part = target.absolute().with_name(f".{target.name}{UNFINISHED}")
    try:
        part.unlink(missing_ok=True)  # one that was left behind may be others' to read
        yield part
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Sync a folder. Without this, new names in the folder may not survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
