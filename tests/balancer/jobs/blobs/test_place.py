"""`--files`: what may be given, and what follows."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from arriero.balancer.jobs.blobs.local import LocalBlobs
from arriero.balancer.jobs.blobs.place import FilesPlace, open_blobs, parse_place, work_folder
from arriero.balancer.jobs.blobs.port import BlobsAway
from arriero.balancer.jobs.blobs.remote import RemoteBlobs
from arriero.balancer.jobs.blobs.threads import on_thread
from tests.waiting import HANGS


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("/data", FilesPlace(Path("/data"))),
        ("data/files", FilesPlace(Path("data/files"))),
        ("file:///data/a%20b", FilesPlace(Path("/data/a b"))),
        ("s3://bucket/folder", FilesPlace(url="s3://bucket/folder")),
        (None, None),
    ],
)
def test_places(given: str | None, place: FilesPlace | None) -> None:
    assert parse_place(given) == place
    assert parse_place(place) == place


@pytest.mark.parametrize("given", ["", "s3://", "a b://c", "x\ny", 7])
def test_what_is_none(given: object) -> None:
    with pytest.raises(ValueError, match="must be a folder, or a URL such as s3://BUCKET/FOLDER"):
        parse_place(given)


@pytest.mark.parametrize(
    "given", ["s3://AKIA:topsecret@bucket/a", "s3a://AKIA:top/secret@bucket", "s3://AKIA:topsecret"]
)
def test_s3_takes_no_credentials(given: str) -> None:
    with pytest.raises(ValueError, match=r"without credentials: .* AWS_ACCESS_KEY_ID") as told:
        parse_place(given)
    assert "AKIA" not in str(told.value)
    arn = "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/a"
    assert parse_place(arn) == FilesPlace(url=arn)


def test_no_password_is_shown() -> None:
    assert str(FilesPlace(url="sftp://me:secret@host/a")) == "sftp://host/a"
    assert str(FilesPlace(Path("/data"))) == "/data"


def test_a_folder_is_made(tmp_path: Path) -> None:
    place = FilesPlace(tmp_path / "a" / "b")
    assert isinstance(open_blobs(place), LocalBlobs)
    assert (tmp_path / "a" / "b").is_dir()
    assert work_folder(place) == tmp_path / "a" / "b" / "work"


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BlobsAway, match="cannot make the folder"):
        open_blobs(FilesPlace(tmp_path / "file" / "a"))
    with pytest.raises(BlobsAway, match="cannot use nosuch://a"):
        open_blobs(FilesPlace(url="nosuch://a"))


def test_a_bucket_has_its_work_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = FilesPlace(url="memory://x")
    assert isinstance(open_blobs(place), RemoteBlobs)
    assert work_folder(place).is_relative_to(tmp_path)
    assert work_folder(place) != work_folder(FilesPlace(url="memory://y"))


def test_a_bucket_that_is_silent_is_not_waited_for_long() -> None:
    blobs = open_blobs(FilesPlace(url="s3://bucket/folder"))
    assert isinstance(blobs, RemoteBlobs)
    system = blobs._system
    told = system._prepare_config_kwargs()
    tries = system.retries * told["retries"]["total_max_attempts"]
    assert (told["connect_timeout"], told["read_timeout"], tries) == (3, 15, 4)


async def test_a_bucket_whose_host_says_nothing_is_away() -> None:
    """It takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hasty = {"read_timeout": 0.05, "retries": {"total_max_attempts": 1}}
        with fsspec_settings(s3={"config_kwargs": hasty, "endpoint_url": url}):
            blobs = open_blobs(FilesPlace(url="s3://silent/folder"))
            with pytest.raises(BlobsAway, match="files"):
                await asyncio.wait_for(on_thread(blobs.names, "files"), HANGS)


@contextmanager
def fsspec_settings(**settings: dict[str, object]) -> Iterator[None]:
    """What a user's file of `~/.config/fsspec` may say."""
    settings["s3"] |= {"key": "me", "secret": "none", "skip_instance_cache": True}
    fsspec.config.conf.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del fsspec.config.conf[name]
