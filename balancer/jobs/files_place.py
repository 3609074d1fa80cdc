"""Where the bytes of files are stored (`--files`); by default next to the store of `--state`.

Each balancer also has a local folder for unfinished work. Files that are lost when their process
ends are in a temporary folder.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from ..store.url import StoreUrl
from .blobs import Blobs, BlobsAway, LocalBlobs
from .remote_blobs import RemoteBlobs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The maximum bytes of one file and of all files together."""

    max_file: int = 2**30
    max_total: int = 64 * 2**30


FORMS = "a folder, or a URL such as s3://BUCKET/FOLDER"

S3 = ("s3", "s3a")
S3_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use ~/.aws"

S3_PATIENCE = {
    "connect_timeout": 3,
    "read_timeout": 15,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
"""The time limits in seconds that botocore gets for a call, unless fsspec is configured otherwise.

With botocore's own limits, a silent host would block a thread for two minutes.
"""

S3_RETRIES = 2
"""The attempts of s3fs for a call, each with botocore's retries; together at most a minute."""


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """The storage of files: a local `folder`, or a `url` for fsspec."""

    folder: Path | None = None
    url: str = ""

    def __str__(self) -> str:
        """Return the folder or URL without a password, for messages."""
        if self.folder is not None:
            return str(self.folder)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def parse_place(value: object) -> FilesPlace | None:
    """Parse a folder or URL. Raises `ValueError` with a text that names the allowed forms."""
    if value is None or isinstance(value, FilesPlace):
        return value
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 4096:
        raise ValueError(f"must be {FORMS}")
    scheme, separator, rest = value.partition("://")
    if not separator:
        return FilesPlace(Path(value))
    if scheme == "file":
        return FilesPlace(Path(unquote(rest)))
    if not scheme.isalnum() or not rest:
        raise ValueError(f"must be {FORMS}")
    if scheme in S3 and _has_credentials(rest.partition("/")[0]):
        raise ValueError(f"must be {FORMS}, without credentials: {S3_CREDENTIALS}")
    return FilesPlace(url=value)


def _has_credentials(bucket: str) -> bool:
    """Return whether a URL has credentials before the bucket.

    s3fs would read such credentials as a part of the bucket's name, and show them in errors.
    """
    return "@" in bucket or (":" in bucket and not bucket.startswith("arn:"))


def place_beside(store: StoreUrl, until_the_end: AsyncExitStack) -> FilesPlace | None:
    """Return the place next to the store of `--state`, or `None` if the store has no such place.

    For `memory://` the place is a temporary folder until the end of the process. A shared database
    has no such place.
    """
    if store.kind == "sqlite":
        return FilesPlace(Path(f"{store.location}-files"))
    if store.kind == "memory":
        try:
            folder = until_the_end.enter_context(temporary_folder())
        except OSError as error:  # as in a container that can write nowhere
            logger.warning(
                "files and batches are off, because no temporary folder can be made: %s; give a "
                "folder with --files",
                error,
            )
            return None
        return FilesPlace(folder)
    return None


def open_blobs(place: FilesPlace) -> Blobs:
    """Open the storage. Raises `BlobsAway` with a sentence that says what to do."""
    if place.folder is not None:
        return _local(place.folder)
    if find_spec("fsspec") is None:
        raise BlobsAway(
            "storage other than a folder needs fsspec: pip install fsspec, or s3fs for S3"
        )
    import fsspec

    is_s3 = place.url.partition("://")[0] in S3
    own = fsspec.config.conf.get("s3", {}).get("config_kwargs", {}) if is_s3 else {}
    options = {"config_kwargs": {**S3_PATIENCE, **own}} if is_s3 else {}
    try:
        system, root = fsspec.core.url_to_fs(place.url, **options)
    except (ImportError, ValueError, OSError) as error:
        raise BlobsAway(f"cannot use {place}: {str(error)[:200]}") from error
    if is_s3:
        system.retries = S3_RETRIES
    return RemoteBlobs(system, root)


def _local(folder: Path) -> LocalBlobs:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BlobsAway(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise BlobsAway(f"the folder {folder} must be writable")
    return LocalBlobs(folder)


def work_folder(place: FilesPlace) -> Path:
    """Return the local folder for unfinished work: in `place`, or in the user's cache folder."""
    if place.folder is not None:
        return place.folder / "work"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "arriero" / "work" / hashlib.sha256(place.url.encode()).hexdigest()[:16]


MAX_RUNNERS = 64
"""The maximum number of balancers on one machine that share a place."""


class WorkPlace:
    """The folder of one balancer for unfinished work. Leaving the context releases the folder.

    A lock on the folder marks its owner, and the system removes the lock when the process ends. So
    the next process takes the same folder with its name and contents.
    """

    def __init__(self, folder: Path, name: str, lock: int) -> None:
        self.folder = folder
        self.name = name
        self._lock = lock

    @classmethod
    def take(cls, root: Path) -> Self:
        """Take the first folder in `root` that no process uses. Raises `OSError`."""
        for number in range(1, MAX_RUNNERS + 1):
            folder = root / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return cls(folder, _name(folder / "name"), lock)
        raise OSError(f"{MAX_RUNNERS} balancers already use {root}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


def _name(path: Path) -> str:
    """Return the runner's name in the store, which is unique and the same after a restart."""
    if not path.exists() or not (name := path.read_text().strip()):
        name = f"runner-{os.urandom(8).hex()}"
        unfinished = path.with_suffix(".new")
        unfinished.write_text(name)
        unfinished.replace(path)
    return name


PREFIX = "arriero-files-"
LOCK = "lock"

GRACE = 60.0
"""The age in seconds below which an unlocked folder is kept for the process that made it."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Return a context with a temporary folder, which is deleted at the end.

    If a process is killed, the next balancer on this machine deletes its folder. A lock marks the
    folder of a running process. Raises `OSError` if no folder can be made.
    """
    remove_left_behind(Path(tempfile.gettempdir()), time.time() - GRACE)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = os.open(Path(name) / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(lock)


def remove_left_behind(parent: Path, before: float) -> None:
    """Delete unlocked folders in `parent` that changed last before `before`."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or gone by now
            if folder.lstat().st_mtime < before:
                _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
