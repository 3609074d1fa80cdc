"""The folder of model files, shared by the agents of a host.

```
hub/models--org--repo/blobs, refs, snapshots   the layout of huggingface-hub's own cache
web/DIGEST/NAME.gguf                           other downloads, by the digest of their URL
locks/DIGEST.use, DIGEST.fetch                 two locks for each file
```

The name of an incomplete file ends in `.part`. A process that uses or downloads a file holds its
`use` lock shared; a process that evicts it holds the lock exclusively. A process that downloads it
holds its `fetch` lock; the lock's file contains the record.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ...shared.log import context
from ...shared.strict import LAZY
from .file_lock import FileLock
from .port import FetchError

logger = logging.getLogger(__name__)

PART = ".part"
MAX_RESERVE = 2**30
"""Maximum bytes of a disk kept free, so that other programs on the host can still write."""
RESERVE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of a file: how to resume its download, and what was verified.

    `validator` is the ETag or date with which a partial file was begun; `total` is its full size.
    `sha256` was computed over the whole file, which had `size` bytes then.
    """

    __pydantic_config__ = LAZY

    validator: str | None = None
    total: int | None = None
    sha256: str | None = None
    size: int | None = None


_record: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(path: Path) -> Record:
    """Return the record in `path`; an empty one if it is missing, or torn by a crash."""
    try:
        return _record.validate_json(path.read_bytes(), strict=True)
    except (FileNotFoundError, ValidationError):
        return Record()


def write_record(path: Path, record: Record) -> None:
    """Write `record` to `path`. Raises `OSError`."""
    path.write_text(json.dumps(asdict(record)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in the folder. While a file is downloaded, `bytes` is its full size.

    `last_used` is a time; only the order of these times counts.
    """

    name: str
    bytes: int
    last_used: float
    is_used: bool


class NoRoomError(Exception):
    """Too little room, even without all unused files: `missing` more bytes are needed."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are missing")
        self.missing = missing


def to_evict(files: Iterable[StoredFile], missing: int) -> list[StoredFile]:
    """Return the least recently used files that together free at least `missing` bytes.

    Files in use are never returned. Raises `NoRoomError`.
    """
    evicted: list[StoredFile] = []
    unused = sorted((file for file in files if not file.is_used), key=lambda file: file.last_used)
    for file in unused:
        if missing <= 0:
            break
        evicted.append(file)
        missing -= file.bytes
    if missing > 0:
        raise NoRoomError(missing)
    return evicted


class ModelsFolder:
    """The folder of model files.

    `limit` bounds the bytes of all files together. Without a limit only the disk bounds them, and
    no file is evicted.
    """

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self.root = root
        self.limit = limit
        self.hub = root / "hub"
        self._web = root / "web"
        self._locks = root / "locks"

    def create(self) -> None:
        """Make the folders. Raises `OSError`."""
        for folder in (self.hub, self._web, self._locks):
            folder.mkdir(parents=True, exist_ok=True)

    def web_file(self, url: str, name: str) -> Path:
        """Return the path for the download from `url`; files of one split model share a folder."""
        return self._web / _digest(url) / name

    def use(self, file: Path) -> FileLock:
        """Protect `file` from eviction until the lock is released, and record its use."""
        lock = FileLock.shared(self._lock(file, "use"))
        lock.touch()
        return lock

    def fetch_lock(self, file: Path) -> Path:
        """Return the path of the lock that a process downloading `file` holds."""
        return self._lock(file, "fetch")

    def record(self, file: Path) -> Record:
        return read_record(self._lock(file, "fetch"))

    def write_record(self, file: Path, record: Record) -> None:
        """Write the record; the caller holds the `fetch` lock. Raises `OSError`."""
        write_record(self._lock(file, "fetch"), record)

    def room(self) -> int:
        """Return the bytes available for more files after all unused files are evicted."""
        free = self.disk_room()
        if self.limit is None or not self._locks.exists():
            return free if self.limit is None else min(self.limit, free)
        with self._alone():
            files = self.stored()
        unused = sum(file.bytes for file in files if not file.is_used)
        used = sum(file.bytes for file in files if file.is_used)
        return max(min(self.limit - used, free + unused), 0)

    def disk_room(self) -> int:
        """Return the bytes that the disk has left above the reserve."""
        disk = shutil.disk_usage(_existing(self.root))
        return max(disk.free - reserve(disk.total), 0)

    def make_room(self, sizes: Mapping[Path, int]) -> None:
        """Evict files until each file in `sizes` can grow to its size. Raises `FetchError`.

        The caller holds the `use` locks of these files. Other downloads count with their full
        size.
        """
        with self._alone():
            growth = sum(max(size - _here(file), 0) for file, size in sizes.items())
            if self.limit is not None:
                self._evict(sizes, growth, self.limit)
            free = self.disk_room()
        if growth > free:
            raise disk_full(self.root, growth, free)

    def stored(self) -> list[StoredFile]:
        """Return all files here, complete or not."""
        return [found for path in self._paths() if (found := self._stored(path))]

    def _alone(self) -> FileLock:
        """Take the lock that keeps other processes from checking which files are in use."""
        return FileLock.exclusive(self._locks / "folder")

    def _evict(self, sizes: Mapping[Path, int], growth: int, limit: int) -> None:
        others = [each for each in self.stored() if whole_of(self.root / each.name) not in sizes]
        over = sum(file.bytes for file in others) + sum(sizes.values()) - limit
        try:
            evicted = to_evict(others, max(over, growth - self.disk_room()))
        except NoRoomError as error:
            raise too_large(sum(sizes.values()), limit, error.missing) from error
        for file in evicted:
            self._remove(self.root / file.name)

    def _remove(self, path: Path) -> None:
        file = whole_of(path)
        lock = FileLock.try_exclusive(self._lock(file, "use"))
        if lock is None:
            return
        with lock:
            logger.info("a model file is evicted", extra=context(file=str(path)))
            for link in _links_to(file):
                link.unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            part_of(file).unlink(missing_ok=True)
            self._lock(file, "fetch").unlink(missing_ok=True)
            lock.path.unlink(missing_ok=True)

    def _paths(self) -> Iterator[Path]:
        for pattern in ("hub/models--*/blobs/*", "web/*/*"):
            yield from (path for path in self.root.glob(pattern) if path.is_file())

    def _stored(self, path: Path) -> StoredFile | None:
        """Return the file; `None` if it is gone, or was renamed because it is complete."""
        file = whole_of(path)
        lock = FileLock.try_exclusive(self._lock(file, "use"))
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return None
        finally:
            if lock is not None:
                lock.release()
        if lock is None and path != file:
            size = max(size, self.record(file).total or 0)
        return StoredFile(
            name=str(path.relative_to(self.root)),
            bytes=size,
            last_used=self._lock(file, "use").stat().st_mtime,
            is_used=lock is None,
        )

    def _lock(self, file: Path, kind: str) -> Path:
        return self._locks / f"{_digest(str(file.relative_to(self.root)))}.{kind}"


def part_of(file: Path) -> Path:
    """Return the path of the partial download of `file`."""
    return file.with_name(file.name + PART)


def whole_of(path: Path) -> Path:
    """Return the complete file to which `path` belongs: `path` itself, or without `.part`."""
    return path.with_name(path.name.removesuffix(PART))


def reserve(total: int) -> int:
    """Return the bytes of a disk of `total` bytes that stay free."""
    return min(int(total * RESERVE_SHARE), MAX_RESERVE)


def disk_full(folder: Path, needed: int, free: int) -> FetchError:
    return FetchError(
        "disk_full",
        f"{in_words(needed)} do not fit on the disk of {folder}, which has {in_words(free)} "
        "left for models",
        "free space there, choose another --models-dir, or set --models-limit so that the agent "
        "deletes files of models that are no longer served",
    )


def too_large(needed: int, limit: int, missing: int) -> FetchError:
    return FetchError(
        "too_large",
        f"{in_words(needed)} do not fit into --models-limit, which is {in_words(limit)}: "
        f"{in_words(missing)} are missing, and the other files there are in use",
        "raise --models-limit, or choose a smaller quantisation",
    )


def in_words(size: int) -> str:
    """Return `size` in a suitable unit: `3.2 GiB`."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _here(file: Path) -> int:
    """Return the bytes of the partial download of `file`; an old whole file does not count."""
    try:
        return part_of(file).stat().st_size
    except FileNotFoundError:
        return 0


def _links_to(file: Path) -> list[Path]:
    """Return the snapshots in the hub's cache that link to `file`."""
    if file.parent.name != "blobs":
        return []
    snapshots = (file.parent.parent / "snapshots").rglob("*")
    return [link for link in snapshots if link.is_symlink() and link.readlink().name == file.name]


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
