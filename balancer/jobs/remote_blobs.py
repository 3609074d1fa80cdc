"""Blobs in storage that fsspec can access: `s3://bucket/folder`, `gs://…`, `memory://…`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO

from .blobs import BlobGone, BlobsAway

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_AT_ONCE = 1024 * 1024
"""Bytes read by one request to the storage. A chunk of a batch is hardly larger."""

SENT_AT_ONCE = 8 * 1024 * 1024
"""Bytes of one part of an upload. Only one part is in memory.

S3 accepts up to 10,000 parts of at least 5 MiB.
"""


class RemoteBlobs:
    """`Blobs` below `root` of an fsspec file system."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        _keep_no_listings(system)

    def create(self, name: str) -> "RemoteWriter":
        with raising_away(name):
            return RemoteWriter(self._system, self._path(name))

    @contextmanager
    def open(self, name: str, offset: int = 0) -> Iterator[BinaryIO]:
        with raising_away(name):
            file = self._system.open(self._path(name), "rb", block_size=READ_AT_ONCE)
            file.seek(offset)
        with closing(BufferedReader(_Reading(file, name), READ_AT_ONCE)) as reader:
            yield reader

    def delete(self, name: str) -> None:
        with raising_away(name), suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def delete_all(self, folder: str) -> None:
        with raising_away(folder), suppress(FileNotFoundError):
            self._system.rm(self._path(folder), recursive=True)

    def names(self, folder: str) -> list[str]:
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        with raising_away(folder):
            self._system.invalidate_cache()
            found = self._system.find(self._path(folder), detail=True)
            # What a system calls a path may begin with a slash, or not.
            return {
                f"{folder}/{path.rpartition(f'/{folder}/')[2]}": int(about["size"])
                for path, about in found.items()
            }

    def modified_at(self, name: str) -> float | None:
        try:
            with raising_away(name):
                modified: datetime = self._system.modified(self._path(name))
        except BlobsAway:
            return None
        return modified.timestamp()

    def delete_unfinished(self, before: float) -> None:
        """Do nothing, because object stores show only complete blobs.

        A rule of the bucket deletes unfinished uploads.
        """

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _keep_no_listings(system: Any) -> None:
    """Turn off cached listings, because other balancers write to the same storage."""
    listings = getattr(system, "dircache", None)
    if listings is not None:
        listings.use_listings_cache = False
        listings.clear()


class _Reading(RawIOBase):
    """Reads a file of an fsspec system, and raises `BlobsAway` for errors."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        with raising_away(self._name):
            data: bytes = self._file.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        with raising_away(self._name):
            self._file.close()


class RemoteWriter:
    """A `BlobWriter` whose blob is invisible before `commit`.

    Until an object is complete, object stores show the older object with its name.
    """

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path
        self._file = self._opened()
        self._is_done = False

    def _opened(self) -> Any:
        try:
            return self._system.open(self._path, "wb", block_size=SENT_AT_ONCE)
        except FileNotFoundError:  # it has folders
            self._system.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            return self._system.open(self._path, "wb", block_size=SENT_AT_ONCE)

    def write(self, data: bytes) -> None:
        with raising_away(self._path):
            self._file.write(data)

    def commit(self) -> None:
        with raising_away(self._path):
            self._file.close()
        self._is_done = True

    def abort(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        is_object = hasattr(self._file, "forced")  # of fsspec's: its parts are sent as they fill
        with suppress(BlobsAway), raising_away(self._path):
            if is_object:
                self._file.closed = True  # fsspec would send the rest
                self._file.discard()
            else:
                self._file.close()
                self._system.rm_file(self._path)


@contextmanager
def raising_away(name: str) -> Iterator[None]:
    """Return a context that turns errors of the system into `BlobsAway`, with a one-line message.

    Each system has its own errors, and some are no `OSError`, such as botocore's.
    """
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        away = BlobGone if isinstance(error, FileNotFoundError) else BlobsAway
        raise away(f"{name}: {words or type(error).__name__}") from error
