"""SHA-256 of files, in pieces, so that a download can go on hashing where a file ends."""

import hashlib
from pathlib import Path

_CHUNK = 1 << 20


def hash_of(path: Path) -> "hashlib._Hash":
    """The running hash of what `path` holds; `update` goes on from there. Raises `OSError`."""
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            running.update(chunk)
    return running


def sha256_of(path: Path) -> str:
    """Raises `OSError`."""
    return hash_of(path).hexdigest()
