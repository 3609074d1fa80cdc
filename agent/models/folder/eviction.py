"""Which stored files make room: those that nobody uses, the least recently used first."""

from collections.abc import Iterable
from dataclasses import dataclass


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
    """Even without all files that nobody uses there is too little room: `missing` bytes."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are missing")
        self.missing = missing


def to_evict(files: Iterable[StoredFile], missing: int) -> list[StoredFile]:
    """The files whose eviction frees `missing` bytes at least. Raises `NoRoomError`."""
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
