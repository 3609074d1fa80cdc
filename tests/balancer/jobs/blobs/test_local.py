"""Bytes in a folder."""

import os
from pathlib import Path

import pytest

from arriero.balancer.jobs.blobs.local import LocalBlobs
from arriero.balancer.jobs.blobs.port import BlobsAway
from tests.balancer.jobs.blobs.contract import check_blobs, read, write


def test_the_contract(tmp_path: Path) -> None:
    check_blobs(LocalBlobs(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "nothing is left"


def test_nobody_sees_what_is_not_finished(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    write(blobs, "files/a", b"old")
    writer = blobs.create("files/a")
    writer.write(b"new")
    assert read(blobs, "files/a") == b"old"
    writer.commit()
    assert read(blobs, "files/a") == b"new"


def test_what_was_never_finished_is_swept(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    writers = [blobs.create(name) for name in ("files/old", "files/new")]
    [old] = tmp_path.glob("files/old*")
    os.utime(old, (100.0, 100.0))
    blobs.sweep(200.0)
    assert [path.name.split(".")[0] for path in tmp_path.glob("files/*")] == ["new"]
    for writer in writers:
        writer.abort()


def test_what_the_system_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("not a folder")
    with pytest.raises(BlobsAway, match=r"exists|directory"):
        LocalBlobs(tmp_path).create("files/a")
