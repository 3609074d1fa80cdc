"""A partly downloaded file: appended to, hashed as it grows, renamed once it is complete.

After a crash at any moment there is a part with the file's first bytes, or the whole file.
"""

import hashlib
import os
from pathlib import Path
from typing import Self

from .models_folder import part_of

_BUFFER = 1 << 17


class PartFile:
    """The open part of `file`. Its hash includes the bytes of an earlier download.

    Only the holder of the file's `fetch` lock may open the part. Methods raise `OSError`.
    """

    def __init__(self, file: Path, *, is_hashed: bool) -> None:
        self._file = file
        self._path = part_of(file)
        self._is_hashed = is_hashed
        file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("ab", buffering=_BUFFER)
        self.size = self._path.stat().st_size
        self._hash = hash_of(self._path) if is_hashed else None

    def append(self, data: bytes) -> None:
        self._stream.write(data)
        self.size += len(data)
        if self._hash is not None:
            self._hash.update(data)

    def start(self, length: int) -> bytes:
        """Return the first `length` bytes, or fewer if the file is shorter."""
        self._stream.flush()
        with self._path.open("rb") as file:
            return file.read(length)

    def flush(self) -> None:
        """Write buffered bytes to the system, so that a killed process does not lose them."""
        self._stream.flush()

    def restart(self) -> None:
        """Drop all bytes so far."""
        self._stream.flush()
        self._stream.truncate(0)
        self.size = 0
        self._hash = hash_of(self._path) if self._is_hashed else None

    def sha256(self) -> str | None:
        return None if self._hash is None else self._hash.hexdigest()

    def finish(self) -> None:
        """Write the complete file to disk under its own name."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._path.replace(self._file)
        descriptor = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_CHUNK = 1 << 20


def hash_of(path: Path) -> "hashlib._Hash":
    """Return the running SHA-256 of the file `path`; `update` continues it. Raises `OSError`."""
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            running.update(chunk)
    return running


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file `path`. Raises `OSError`."""
    return hash_of(path).hexdigest()
