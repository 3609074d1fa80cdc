"""`RemoteBlobs` over a real S3 server: moto's, over HTTP, in a thread of this process."""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arriero.balancer.backup import BackupError, back_up, restore
from arriero.balancer.jobs.blobs import BlobGone, Blobs, BlobsAway
from arriero.balancer.jobs.files_place import FilesPlace, open_blobs
from arriero.balancer.jobs.remote_blobs import SENT_AT_ONCE
from tests.balancer.jobs.contract import check_blobs, read, write
from tests.s3_server import INSTALL, SECRET, Server, started

s3fs = pytest.importorskip("s3fs", reason=INSTALL)
pytest.importorskip("moto.server", reason=INSTALL)

WHOLE = bytes(range(256)) * 4096 * 9
"""9 MiB: two parts."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With what a user sets to reach it. Every test has a folder of its own in the bucket."""
    server = started()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        environment.setattr(s3fs.S3FileSystem, "retries", 1)
        with anew():
            yield server
    server.stop()


@contextmanager
def anew() -> Iterator[None]:
    """Inside, clients are made as in a process that starts."""
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


@contextmanager
def strict(server: Server) -> Iterator[None]:
    """Inside, it knows no key."""
    server.ask("POST", "/moto-api/reset-auth", b"0")
    try:
        yield
    finally:
        server.ask("POST", "/moto-api/reset-auth", b"inf")


def opened(bucket: str = "bucket", folder: str = "") -> Blobs:
    return open_blobs(FilesPlace(url=f"s3://{bucket}/{folder or uuid.uuid4().hex}"))


def test_the_contract(server: Server) -> None:
    check_blobs(opened(folder="contract"))
    assert b"<Contents>" not in server.ask("GET", "/bucket?prefix=contract")[0], "nothing is left"


def test_large_files_are_sent_in_parts_and_read_in_ranges(server: Server) -> None:
    blobs = opened(folder="large")
    write(blobs, "files/a", *(WHOLE[at : at + 1_000_003] for at in range(0, len(WHOLE), 1_000_003)))
    content, etag = server.ask("GET", "/bucket/large/files/a")
    assert content == WHOLE
    assert etag.endswith('-2"'), "two parts"
    for offset in (SENT_AT_ONCE - 1, len(WHOLE) - 1, len(WHOLE)):
        assert read(blobs, "files/a", offset) == WHOLE[offset:]


def test_an_empty_file(server: Server) -> None:
    blobs = opened()
    write(blobs, "files/none")
    assert read(blobs, "files/none") == b""
    assert blobs.names("files") == ["files/none"]


@pytest.mark.parametrize("size", [3, SENT_AT_ONCE + 3])
def test_what_is_given_up_or_fails_leaves_what_had_its_name(server: Server, size: int) -> None:
    blobs = opened()
    write(blobs, "files/a", b"old")
    given_up = blobs.create("files/a")
    given_up.write(bytes(size))
    given_up.abort()
    assert b"<Upload>" not in server.ask("GET", "/bucket?uploads")[0], "no part is left to pay for"
    failed = blobs.create("files/a")
    failed.write(bytes(size))
    with strict(server):
        with pytest.raises(BlobsAway):
            failed.commit()
        failed.abort()
    del given_up, failed
    assert read(blobs, "files/a") == b"old"


def test_others_files_are_seen_whatever_was_listed(server: Server) -> None:
    one = opened(folder="shared")
    with anew():
        other = opened(folder="shared")
    write(one, "files/a", b"1")
    write(one, "batches/x/1", b"1")
    assert one.names("batches") == ["batches/x/1"]
    assert one.names("files") == ["files/a"]
    write(other, "files/b", b"22")
    write(other, "files/a", b"333")
    write(other, "batches/x/2", b"2")
    assert read(one, "files/b") == b"22"
    assert read(one, "files/a") == b"333"
    assert one.modified_at("files/b") is not None
    one.delete_all("batches/x")
    assert other.names("batches") == []


def test_only_the_folder_is_touched(server: Server) -> None:
    blobs, neighbour = opened(folder="mine"), opened(folder="mine2")
    write(blobs, "files/a", b"1")
    write(neighbour, "files/b", b"2")
    assert blobs.names("files") == ["files/a"]
    blobs.delete_all("files")
    assert neighbour.names("files") == ["files/b"]


def check_all_tell(blobs: Blobs, told: str) -> None:
    """Whatever is done tells this, on one line, and no secret."""
    uses: dict[str, Callable[[], object]] = {
        "files/a": lambda: write(blobs, "files/a", b"1"),
        "files/b": lambda: write(blobs, "files/b", bytes(SENT_AT_ONCE), b"1"),
        "files/c": lambda: read(blobs, "files/c"),
        "batches": lambda: blobs.names("batches"),
    }
    for name, use in uses.items():
        with pytest.raises(BlobsAway, match=f"{name}: {told}.*$") as error:
            use()
        assert SECRET not in str(error.value)
    assert blobs.modified_at("files/a") is None


def test_a_missing_bucket_is_told(server: Server) -> None:
    check_all_tell(opened("nowhere"), "The specified bucket does not exist")


def test_wrong_credentials_are_told_without_them(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = opened()
    told = "(The AWS Access Key Id you provided does not exist|Forbidden)"
    with caplog.at_level(logging.DEBUG), strict(server):
        check_all_tell(blobs, told)
        with pytest.raises(BlobsAway, match=f"files/a: {told}"):
            blobs.delete("files/a")
        with pytest.raises(BlobsAway, match=f"batches/x: {told}"):
            blobs.delete_all("batches/x")
    assert SECRET not in caplog.text


def test_no_credentials_at_all_are_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with anew(), pytest.raises(BlobsAway, match="files/a: Unable to locate credentials"):
        write(opened(), "files/a", b"1")


def test_a_server_that_goes_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    going = started()
    monkeypatch.setenv("AWS_ENDPOINT_URL", going.url)
    with anew():
        blobs = opened()
        write(blobs, "files/b", WHOLE[: 4 * 1024 * 1024])
        writer = blobs.create("files/c")
        with blobs.open("files/b") as file:
            assert file.read(3) == WHOLE[:3]
            going.stop()
            with pytest.raises(BlobsAway, match="files/b: Could not connect"):
                file.read()
        with pytest.raises(BlobsAway, match="files/c: Could not connect"):
            writer.write(bytes(SENT_AT_ONCE))
        writer.abort()
        check_all_tell(blobs, "Could not connect")


def test_a_backup_of_a_bucket_is_restored_to_another(server: Server, tmp_path: Path) -> None:
    place, other = (FilesPlace(url=f"s3://bucket/{folder}") for folder in ("backed-up", "restored"))
    write(open_blobs(place), "files/large", WHOLE)
    write(open_blobs(place), "batches/batch_1/0-runner.outputs", b"answer\n")
    backup = tmp_path / "backup.tar"
    manifest = back_up(None, place, backup)
    assert (manifest.num_files, manifest.num_bytes) == (2, len(WHOLE) + 7)
    assert SECRET.encode() not in backup.read_bytes()
    assert restore(backup, None, other) == manifest
    assert read(open_blobs(other), "files/large") == WHOLE
    assert read(open_blobs(other), "batches/batch_1/0-runner.outputs") == b"answer\n"
    with pytest.raises(BackupError, match="there are files in s3://bucket/restored"):
        restore(backup, None, other)
    assert b"restored/" not in server.ask("GET", "/bucket?uploads")[0], "no part is left to pay for"


def test_a_blob_that_goes_while_it_is_read_is_gone(server: Server) -> None:
    blobs = opened(folder="going")
    write(blobs, "files/a", WHOLE)
    with blobs.open("files/a") as file:
        assert file.read(3) == WHOLE[:3]
        server.ask("DELETE", "/bucket/going/files/a")
        with pytest.raises(BlobGone, match="files/a"):
            file.read()
    with pytest.raises(BlobGone, match="files/a"):
        read(blobs, "files/a")
