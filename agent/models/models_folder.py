"""The folder of model files, shared by the agents of a host.

```
hub/models--org--repo/blobs, refs, snapshots   the layout of huggingface-hub's own cache
web/DIGEST/NAME.gguf                           downloads from elsewhere, by their URL's digest
locks/DIGEST.use, DIGEST.fetch                 two locks for each file
```

A file that is not complete has `.part` at its end. A process that uses or downloads a file holds
its `use` lock, shared; one that evicts it, exclusively. One that downloads it holds its `fetch`
lock, whose file keeps the record.
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
"""Most bytes of a disk that stay free, so that other programs on the host can still write."""
RESERVE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the folder remembers of a file: how to resume its download, and what was verified.

    `validator` is the ETag or date under which a partial file was begun; `total` its full size.

    `sha256` was computed over the whole file, which had `size` bytes then.
    """

    __pydantic_config__ = LAZY

    validator: str | None = None
    total: int | None = None
    sha256: str | None = None
    size: int | None = None


_record: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(path: Path) -> Record:
    """The record in `path`; an empty one where there is none, or one torn by a crash."""
    try:
        return _record.validate_json(path.read_bytes(), strict=True)
    except (FileNotFoundError, ValidationError):
        return Record()


def write_record(path: Path, record: Record) -> None:
    """Write `record` to `path`. Raises `OSError`."""
    path.write_text(json.dumps(asdict(record)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in the folder. `bytes` of one that is downloading: what it will take.

    `last_used` is a time; only the order counts.
    """

    name: str
    bytes: int
    last_used: float
    is_used: bool


class NoRoomError(Exception):
    """Even without all files that are not in use there is too little room: `missing` bytes."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are missing")
        self.missing = missing


def to_evict(files: Iterable[StoredFile], missing: int) -> list[StoredFile]:
    """The files whose eviction frees `missing` bytes at least, the least recently used first.

    Files in use stay. Raises `NoRoomError`.
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
    """`limit` bounds all files together; `None` leaves it to the disk, and nothing is evicted."""

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
        """Where the download from `url` is kept; files of one split model share their folder."""
        return self._web / _digest(url) / name

    def use(self, file: Path) -> FileLock:
        """Keep `file` from eviction until the lock is released, and note that it is used now."""
        lock = FileLock.shared(self._lock(file, "use"))
        lock.touch()
        return lock

    def fetch_lock(self, file: Path) -> Path:
        """The lock of the process that downloads `file`."""
        return self._lock(file, "fetch")

    def record(self, file: Path) -> Record:
        return read_record(self._lock(file, "fetch"))

    def write_record(self, file: Path, record: Record) -> None:
        """Only the holder of the `fetch` lock may. Raises `OSError`."""
        write_record(self._lock(file, "fetch"), record)

    def room(self) -> int:
        """Bytes that more files may take, once all that is not in use is evicted."""
        free = self.disk_room()
        if self.limit is None or not self._locks.exists():
            return free if self.limit is None else min(self.limit, free)
        with self._alone():
            files = self.stored()
        unused = sum(file.bytes for file in files if not file.is_used)
        used = sum(file.bytes for file in files if file.is_used)
        return max(min(self.limit - used, free + unused), 0)

    def disk_room(self) -> int:
        """Bytes that the disk has left above the reserve."""
        disk = shutil.disk_usage(_existing(self.root))
        return max(disk.free - reserve(disk.total), 0)

    def make_room(self, sizes: Mapping[Path, int]) -> None:
        """Evict until each file in `sizes` can grow to its size. Raises `FetchError`.

        The caller holds their `use` locks. A download of others counts with all it will take.
        """
        with self._alone():
            growth = sum(max(size - _here(file), 0) for file, size in sizes.items())
            if self.limit is not None:
                self._evict(sizes, growth, self.limit)
            free = self.disk_room()
        if growth > free:
            raise disk_full(self.root, growth, free)

    def stored(self) -> list[StoredFile]:
        """All files here, complete or not."""
        return [found for path in self._paths() if (found := self._stored(path))]

    def _alone(self) -> FileLock:
        """While it is held, no other process checks which files are in use."""
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
        """`None` where it has gone meanwhile, or has become whole."""
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
    """Where what has arrived of `file` is kept."""
    return file.with_name(file.name + PART)


def whole_of(path: Path) -> Path:
    """The file that `path` is or will be."""
    return path.with_name(path.name.removesuffix(PART))


def reserve(total: int) -> int:
    """How much of a disk of `total` bytes stays free."""
    return min(int(total * RESERVE_SHARE), MAX_RESERVE)


def disk_full(folder: Path, needed: int, free: int) -> FetchError:
    return FetchError(
        "disk_full",
        f"{in_words(needed)} more do not fit on the disk of {folder}, which has {in_words(free)} "
        "left for models",
        "free space there, choose another --models-dir, or set --models-limit so that files of "
        "models that nobody serves any more are evicted",
    )


def too_large(needed: int, limit: int, missing: int) -> FetchError:
    return FetchError(
        "too_large",
        f"{in_words(needed)} do not fit into --models-limit, which is {in_words(limit)}: "
        f"{in_words(missing)} are missing, and the other files there are in use",
        "raise --models-limit, or choose a smaller quantisation",
    )


def in_words(size: int) -> str:
    """`size` in the unit that suits it: `3.2 GiB`."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _here(file: Path) -> int:
    """How much of a new `file` is here; one that it replaces stays until it is whole."""
    try:
        return part_of(file).stat().st_size
    except FileNotFoundError:
        return 0


def _links_to(file: Path) -> list[Path]:
    """The snapshots of the hub's cache that name `file`."""
    if file.parent.name != "blobs":
        return []
    snapshots = (file.parent.parent / "snapshots").rglob("*")
    return [link for link in snapshots if link.is_symlink() and link.readlink().name == file.name]


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
