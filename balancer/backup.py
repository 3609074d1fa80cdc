"""A backup of a balancer's store and its files, as one tar file; and back.

The balancer may run meanwhile. The database is copied by SQLite's own online backup, so it is as it
was at one moment. Files are written once, under names of their own: those that are there are copied
before the database, and those that came since behind it. So all that the copied database knows are
there, but for files that were deleted in between, as they are at the balancer.

A tar file has `manifest.json`, `state.db`, and `files/…` as they lie in `--files`. Beside
PostgreSQL there is no `state.db`: `pg_dump` copies the database first, then this its files.
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

from .jobs.blobs import ROOTS, UNFINISHED

FORMAT = 1
MAX_MANIFEST = 2**16


class BackupError(Exception):
    """It cannot be done: one sentence with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a backup is of. `created_at` in seconds since 1970.

    One that `has_database` is of SQLite; the others are of files beside PostgreSQL.
    """

    format: int
    version: str
    created_at: float
    has_database: bool
    num_files: int
    num_bytes: int


def _write(
    database: Path | None, files: Path, part: Path, copy: Callable[[Path, Path], None], now: float
) -> Manifest:
    sizes: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory(dir=part.parent) as folder,
        part.open("wb") as raw,
        tarfile.open(fileobj=raw, mode="w") as archive,
    ):
        _add_new(archive, files, sizes)
        if database is not None:
            copied = Path(folder) / "state.db"
            copy(database, copied)
            _add_new(archive, files, sizes)
            archive.add(copied, "state.db")
        manifest = Manifest(
            format=FORMAT,
            version=version("arriero"),
            created_at=now,
            has_database=database is not None,
            num_files=len(sizes),
            num_bytes=sum(sizes.values()),
        )
        body = json.dumps(asdict(manifest)).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size, entry.mtime = len(body), int(now)
        archive.addfile(entry, io.BytesIO(body))
        archive.close()
        raw.flush()
        os.fsync(raw.fileno())
    return manifest


def _names(files: Path) -> set[str]:
    """The whole files of all folders, by their paths below `files`."""
    found = (path for root in ROOTS for path in (files / root).rglob("*"))
    return {
        path.relative_to(files).as_posix()
        for path in found
        if path.suffix != UNFINISHED and path.is_file()
    }


def _add_new(archive: tarfile.TarFile, files: Path, sizes: dict[str, int]) -> None:
    """Copy the files that are not among `sizes`, and note theirs."""
    for name in sorted(_names(files) - sizes.keys()):
        with suppress(FileNotFoundError), (files / name).open("rb") as file:
            entry = archive.gettarinfo(arcname=f"files/{name}", fileobj=file)
            archive.addfile(entry, file)
            sizes[name] = entry.size


def copy_database(database: Path, copy: Path) -> None:
    """As it is at one moment, whoever writes to it. Raises `BackupError`."""
    copy.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise BackupError(f"--state: {database} cannot be copied: {error}") from error


def back_up(
    database: Path | None,
    files: Path,
    target: Path,
    *,
    copy: Callable[[Path, Path], None] = copy_database,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Write `target`, which is whole in the end, or as it was before. Raises `BackupError`.

    Without a `database` it has the files alone, which lie beside PostgreSQL.
    """
    if database is not None and not database.is_file():
        raise BackupError(f"--state: there is no database {database}")
    if database is None and not any((files / root).is_dir() for root in ROOTS):
        raise BackupError(f"--files: {files} is no folder of a balancer's files")
    with _unfinished(target) as part:
        manifest = _write(database, files, part, copy, clock())
        part.replace(target)
        _sync(target.absolute().parent)
    return manifest


def restore(source: Path, database: Path | None, files: Path) -> Manifest:
    """Make `database` and `files` of a backup; neither may be there. Raises `BackupError`.

    The database comes last: a balancer that starts in between finds none. Without one the backup
    has to be of files beside PostgreSQL.
    """
    place = (files if database is None else database).absolute().parent
    if database is not None and database.exists():
        raise BackupError(f"--state: {database} is there; move it away first")
    if any((files / root).exists() for root in ROOTS):
        raise BackupError(f"--files: there are files in {files}; move them away first")
    if not place.is_dir():
        flag = "--files" if database is None else "--state"
        raise BackupError(f"{flag}: there is no folder {place}")
    try:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            manifest = _unpack(source, Path(folder))
            _check_kind(source, manifest, database)
            unpacked = Path(folder) / "files"
            if unpacked.is_dir():
                files.mkdir(parents=True, exist_ok=True)
                for root in unpacked.iterdir():
                    shutil.move(root, files / root.name)
            if database is not None:
                (Path(folder) / "state.db").replace(database)
            _sync(place)
            return manifest
    except (tarfile.TarError, OSError) as error:
        raise BackupError(f"{source} cannot be restored: {error}") from error


def _check_kind(source: Path, manifest: Manifest, database: Path | None) -> None:
    """Refuses a backup of the other kind of store."""
    if manifest.has_database and database is None:
        raise BackupError(f"{source} is of SQLite: restore it with --state sqlite:///FILE")
    if not manifest.has_database and database is not None:
        raise BackupError(
            f"{source} has the files beside PostgreSQL and no database: restore it with "
            "--state postgresql://…, and the database with pg_restore"
        )


def _unpack(source: Path, folder: Path) -> Manifest:
    manifest = None
    num_files = 0
    with tarfile.open(source, "r:") as archive:
        for entry in archive:
            if not entry.isfile():
                raise BackupError(
                    f"{source} is no backup of Arriero: {entry.name[:200]} is no file"
                )
            file = archive.extractfile(entry)
            if file is None:
                raise BackupError(f"{source} is no backup of Arriero")
            if entry.name == "manifest.json" and entry.size <= MAX_MANIFEST:
                manifest = _manifest(source, file.read())
                continue
            target = folder / _safe(source, entry.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
            num_files += entry.name != "state.db"
    database = folder / "state.db"
    if manifest is None or manifest.has_database != database.is_file():
        raise BackupError(f"{source} is no whole backup of Arriero: it ends too early")
    if manifest.num_files != num_files:
        raise BackupError(f"{source} has {num_files} files, not {manifest.num_files}")
    if manifest.has_database:
        _check(database)
    return manifest


def _manifest(source: Path, body: bytes) -> Manifest:
    try:
        manifest = Manifest(**json.loads(body))
    except (ValueError, TypeError) as error:
        raise BackupError(f"{source} is no backup of Arriero: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"{source} is of a newer version of Arriero ({manifest.version})")
    return manifest


def _safe(source: Path, name: str) -> str:
    """A name of an entry, if it is one of ours."""
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
    """A file beside `target`, which is gone unless it took its name."""
    if not target.absolute().parent.is_dir():
        raise BackupError(f"there is no folder {target.absolute().parent}")
    part = target.absolute().with_name(f".{target.name}{UNFINISHED}")
    try:
        yield part
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """New names are there after a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
