"""Bytes in storage that fsspec reaches; its memory stands in for a bucket."""

import io
import uuid

import fsspec
import pytest

from arriero.balancer.jobs.blobs import BlobsAway
from arriero.balancer.jobs.remote_blobs import RemoteBlobs, raising_away
from tests.balancer.jobs.contract import check_blobs, read


def test_the_contract() -> None:
    system, root = fsspec.core.url_to_fs(f"memory://{uuid.uuid4().hex}")
    check_blobs(RemoteBlobs(system, root))


def test_what_a_system_says_is_told() -> None:
    with pytest.raises(BlobsAway, match="files/a: no route to host"), raising_away("files/a"):
        raise OSError("no route to host")


class Refused(Exception):
    """What botocore raises is no `OSError` either."""


class Store:
    """Shows objects when they are whole, as S3 does. A `broken` one lets nothing be read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_broken = False

    def open(self, path: str, mode: str, block_size: int) -> io.BytesIO:
        return Object(self, path) if mode == "wb" else Reading(self, self.objects[path])

    def rm_file(self, path: str) -> None:
        del self.objects[path]


class Object(io.BytesIO):
    forced = False
    is_discarded = False

    def __init__(self, store: Store, path: str) -> None:
        super().__init__()
        self._store, self._path = store, path

    def close(self) -> None:
        self._store.objects[self._path] = self.getvalue()
        super().close()

    @property
    def closed(self) -> bool:
        return self.is_discarded

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        self.is_discarded = is_closed

    def discard(self) -> None:
        self.is_discarded = True


class Reading(io.BytesIO):
    def __init__(self, store: Store, data: bytes) -> None:
        super().__init__(data)
        self._store = store

    def read(self, size: int | None = -1, /) -> bytes:
        if self._store.is_broken:
            raise Refused("connection was closed")
        return super().read(size)


def test_an_object_that_is_given_up_leaves_what_had_its_name() -> None:
    store = Store()
    blobs = RemoteBlobs(store, "bucket")
    store.objects["bucket/files/a"] = b"old"
    writer = blobs.create("files/a")
    writer.write(b"new")
    writer.abort()
    assert read(blobs, "files/a") == b"old"


def test_whatever_fails_while_it_is_read_is_told() -> None:
    store = Store()
    blobs = RemoteBlobs(store, "bucket")
    store.objects["bucket/files/a"] = b"old"
    with blobs.open("files/a", 1) as file:
        store.is_broken = True
        with pytest.raises(BlobsAway, match="files/a: connection was closed"):
            file.readline()


def test_an_error_of_any_kind_is_told() -> None:
    with pytest.raises(BlobsAway, match="files/a: Refused"), raising_away("files/a"):
        raise Refused
