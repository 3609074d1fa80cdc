"""Bytes in a folder of this machine."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .port import ROOTS, BlobsAway

UNFINISHED = ".part"


class LocalBlobs:
    """`Blobs` in `folder`, which is made where it is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> "LocalWriter":
        path = self._folder / name
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return LocalWriter(path)

    @contextmanager
    def open(self, name: str, offset: int = 0) -> Iterator[BinaryIO]:
        path = self._folder / name
        with told(path), path.open("rb") as file:
            file.seek(offset)
            yield file

    def delete(self, name: str) -> None:
        path = self._folder / name
        with told(path):
            path.unlink(missing_ok=True)

    def delete_all(self, folder: str) -> None:
        shutil.rmtree(self._folder / folder, ignore_errors=True)

    def names(self, folder: str) -> list[str]:
        root = self._folder / folder
        with told(root):
            found = [path for path in root.rglob("*") if path.suffix != UNFINISHED]
            return [path.relative_to(self._folder).as_posix() for path in found if path.is_file()]

    def modified_at(self, name: str) -> float | None:
        try:
            return (self._folder / name).stat().st_mtime
        except OSError:
            return None

    def sweep(self, before: float) -> None:
        for folder in ROOTS:
            for path in (self._folder / folder).rglob(f"*{UNFINISHED}"):
                with suppress(OSError):
                    if path.stat().st_mtime < before:
                        path.unlink()


class LocalWriter:
    """A `BlobWriter`: a file beside `path` that takes its name in the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
        self._file = self._unfinished.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        with told(self._path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]

    def commit(self) -> None:
        with told(self._path):
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
    """A new name is there after a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What the system says inside becomes `BlobsAway`."""
    try:
        yield
    except OSError as error:
        raise BlobsAway(f"{path}: {(error.strerror or str(error)).lower()}") from error
