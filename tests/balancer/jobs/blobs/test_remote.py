"""Bytes in storage that fsspec reaches; its memory stands in for a bucket."""

import uuid

import fsspec
import pytest

from arriero.balancer.jobs.blobs.port import BlobsAway
from arriero.balancer.jobs.blobs.remote import RemoteBlobs, told
from tests.balancer.jobs.blobs.contract import check_blobs


def test_the_contract() -> None:
    system, root = fsspec.core.url_to_fs(f"memory://{uuid.uuid4().hex}")
    check_blobs(RemoteBlobs(system, root))


def test_what_a_system_says_is_told() -> None:
    with pytest.raises(BlobsAway, match="files/a: no route to host"), told("files/a"):
        raise OSError("no route to host")
