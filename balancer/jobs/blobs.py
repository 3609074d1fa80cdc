"""Stores of named bytes (blobs): the interface, and a store in a local folder.

All methods block. Call them with `on_thread`.
"""

import asyncio
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, ParamSpec, Protocol, TypeVar

ROOTS = ("files", "batches")
"""The first folders that names of blobs may have."""


def blob_of(id: str) -> str:
    """Return the name of the blob with the bytes of the file `id`."""
    return f"files/{id}"


def results_blob(key: str, *, is_error: bool) -> str:
    """Return the name of the blob with a chunk's outputs, or with its errors if `is_error`."""
    return f"{key}.{'errors' if is_error else 'outputs'}"


class BlobsAway(Exception):
    """The storage cannot be reached, read or written. A later attempt may succeed."""


class BlobGone(BlobsAway):
    """The blob does not exist or was deleted."""


class BlobWriter(Protocol):
    """Writes one blob. Readers see the blob only after `commit`."""

    def write(self, data: bytes) -> None:
        """Append `data`. Raises `BlobsAway`."""

    def commit(self) -> None:
        """Publish the blob and replace an older blob of the same name. Raises `BlobsAway`.

        After this call, the blob survives a crash.
        """

    def abort(self) -> None:
        """Delete the written bytes. Does nothing after `commit`. Never raises."""


class Blobs(Protocol):
    """A store of blobs. Each method may raise `BlobsAway`.

    Names look like `files/file-1` and never come from a request.
    """

    def create(self, name: str) -> BlobWriter:
        """Return a writer for a new blob."""

    def open(self, name: str, offset: int = 0) -> AbstractContextManager[BinaryIO]:
        """Return a reader of a blob from `offset` on. Opening and reading may raise `BlobGone`."""

    def delete(self, name: str) -> None:
        """Delete the blob, if it exists."""

    def delete_all(self, folder: str) -> None:
        """Delete all blobs whose names begin with this folder."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all complete blobs in this folder and its subfolders."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of all complete blobs in this folder and its subfolders."""

    def modified_at(self, name: str) -> float | None:
        """Return the time of the last write in seconds since 1970, or `None` if it is unknown."""

    def delete_unfinished(self, before: float) -> None:
        """Delete incomplete blobs whose last write was before `before`."""


NUM_THREADS = 16
"""The maximum number of threads that access the storage. Further calls wait for a free thread."""

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(NUM_THREADS, "files")


async def on_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` on a thread, to its end even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, partial(function, *args, **kwargs))


UNFINISHED = ".part"


class LocalBlobs:
    """The blobs in a local `folder`, which only its owner can read.

    A missing folder is created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> "LocalWriter":
        path = self._folder / name
        with raising_away(path):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            return LocalWriter(path)

    @contextmanager
    def open(self, name: str, offset: int = 0) -> Iterator[BinaryIO]:
        path = self._folder / name
        with raising_away(path), path.open("rb") as file:
            file.seek(offset)
            yield file

    def delete(self, name: str) -> None:
        path = self._folder / name
        with raising_away(path):
            path.unlink(missing_ok=True)

    def delete_all(self, folder: str) -> None:
        shutil.rmtree(self._folder / folder, ignore_errors=True)

    def names(self, folder: str) -> list[str]:
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        root = self._folder / folder
        sizes: dict[str, int] = {}
        with raising_away(root):
            for path in root.rglob("*"):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    status = path.stat()
                    if path.suffix != UNFINISHED and S_ISREG(status.st_mode):
                        sizes[path.relative_to(self._folder).as_posix()] = status.st_size
        return sizes

    def modified_at(self, name: str) -> float | None:
        try:
            return (self._folder / name).stat().st_mtime
        except OSError:
            return None

    def delete_unfinished(self, before: float) -> None:
        for folder in ROOTS:
            for path in (self._folder / folder).rglob(f"*{UNFINISHED}"):
                with suppress(OSError):
                    if path.stat().st_mtime < before:
                        path.unlink()


class LocalWriter:
    """Writes a blob to a temporary file; `commit` renames the file to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
        self._file = self._unfinished.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        with raising_away(self._path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]

    def commit(self) -> None:
        with raising_away(self._path):
            os.fsync(self._file.fileno())
            self._file.close()
            self._unfinished.replace(self._path)
            _sync_folder(self._path.parent)

    def abort(self) -> None:
        if not self._file.closed:
            self._file.close()
            with suppress(OSError):
                self._unfinished.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, because a new file name survives a power cut only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def raising_away(path: Path) -> Iterator[None]:
    """Return a context that replaces `OSError` by `BlobsAway`."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobGone(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except OSError as error:
        raise BlobsAway(f"{path}: {(error.strerror or str(error)).lower()}") from error
