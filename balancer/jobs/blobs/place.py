"""`--files`: where bytes lie, by default beside the store of `--state`.

Besides the files, each balancer has a folder of its own on this machine, for what is not finished.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .local import LocalBlobs
from .port import Blobs, BlobsAway
from .remote import RemoteBlobs

FORMS = "a folder, or a URL such as s3://BUCKET/FOLDER"

S3 = ("s3", "s3a")
S3_CREDENTIALS = "they come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws"

S3_PATIENCE = {
    "connect_timeout": 3,
    "read_timeout": 15,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
"""Of a call, for botocore, in seconds: with its own, a host that is silent holds a thread for two
minutes. What fsspec's configuration says in its place counts."""

S3_RETRIES = 2
"""How often s3fs makes a call, each with botocore's attempts: it waits a minute at most."""


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """A local `folder`, or a `url` for fsspec."""

    folder: Path | None = None
    url: str = ""

    def __str__(self) -> str:
        """As it may be shown: without a password."""
        if self.folder is not None:
            return str(self.folder)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def parse_place(value: object) -> FilesPlace | None:
    """Raises `ValueError` with what would be right."""
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
    """In place of a bucket or its ARN. s3fs would take them for its name, and tell it in errors."""
    return "@" in bucket or (":" in bucket and not bucket.startswith("arn:"))


def open_blobs(place: FilesPlace) -> Blobs:
    """Raises `BlobsAway`, one sentence with what to do."""
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
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlobsAway(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise BlobsAway(f"the folder {folder} must be writable")
    return LocalBlobs(folder)


def work_folder(place: FilesPlace) -> Path:
    """The local folder for unfinished work: within `place`, or in the user's cache."""
    if place.folder is not None:
        return place.folder / "work"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "arriero" / "work" / hashlib.sha256(place.url.encode()).hexdigest()[:16]
