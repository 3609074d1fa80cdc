"""What holds for whatever keeps bytes."""

import time

import pytest

from arriero.balancer.jobs.blobs import Blobs, BlobsAway


def read(blobs: Blobs, name: str, offset: int = 0) -> bytes:
    with blobs.open(name, offset) as file:
        return file.read()


def write(blobs: Blobs, name: str, *pieces: bytes) -> None:
    writer = blobs.create(name)
    for piece in pieces:
        writer.write(piece)
    writer.commit()
    writer.abort()  # says nothing any more


def check_blobs(blobs: Blobs) -> None:
    write(blobs, "files/a", b"hello ", b"", b"world")
    assert read(blobs, "files/a") == b"hello world"
    assert read(blobs, "files/a", 6) == b"world"
    write(blobs, "files/a", b"new")
    assert read(blobs, "files/a") == b"new"
    unfinished = blobs.create("files/b")
    unfinished.write(b"half")
    unfinished.abort()
    unfinished.abort()
    with pytest.raises(BlobsAway):
        read(blobs, "files/b")
    write(blobs, "batches/x/1", b"1")
    write(blobs, "batches/x/2", b"2")
    assert blobs.names("files") == ["files/a"]
    assert sorted(blobs.names("batches")) == ["batches/x/1", "batches/x/2"]
    assert abs((blobs.modified_at("files/a") or 0) - time.time()) < 60
    assert blobs.modified_at("files/none") is None
    blobs.delete_unfinished(0.0)
    blobs.delete_all("batches/x")
    with pytest.raises(BlobsAway):
        read(blobs, "batches/x/1")
    blobs.delete_all("batches/x")
    assert blobs.names("batches") == []
    blobs.delete("files/a")
    blobs.delete("files/a")
    with pytest.raises(BlobsAway):
        read(blobs, "files/a")
