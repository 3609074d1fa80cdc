"""`--files`: what may be given, and what follows."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import fsspec
import pytest

from arriero.balancer.jobs import files_place as work_place
from arriero.balancer.jobs.blobs import BlobsAway, LocalBlobs, on_thread
from arriero.balancer.jobs.files_place import (
    GRACE,
    LOCK,
    PREFIX,
    FilesPlace,
    WorkPlace,
    open_blobs,
    parse_place,
    place_beside,
    remove_left_behind,
    temporary_folder,
    work_folder,
)
from arriero.balancer.jobs.remote_blobs import RemoteBlobs
from arriero.balancer.store.url import parse_store_url
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


def test_two_never_share_one(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one, WorkPlace.take(tmp_path) as two:
        assert one.folder != two.folder
        assert one.name != two.name


def test_the_next_process_takes_it_up(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one:
        former = one.name, one.folder
    with WorkPlace.take(tmp_path) as again:
        assert (again.name, again.folder) == former


def test_a_name_that_was_not_written_is_made_anew(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one:
        (one.folder / "name").write_text("")
    with WorkPlace.take(tmp_path) as again:
        assert again.name.startswith("runner-")


def test_there_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_place, "MAX_RUNNERS", 1)
    with WorkPlace.take(tmp_path), pytest.raises(OSError, match="1 balancers already use"):
        WorkPlace.take(tmp_path)


LATER = 2 * GRACE


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_behind(parent: Path, name: str = "one") -> Path:
    """The folder of a process that was killed."""
    folder = parent / f"{PREFIX}{name}"
    (folder / "work").mkdir(parents=True)
    (folder / LOCK).touch()
    return folder


def test_it_goes_at_the_end_with_what_is_in_it(parent: Path) -> None:
    with temporary_folder() as folder:
        assert folder.parent == parent
        (folder / "file").write_bytes(b"x")
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start(parent: Path) -> None:
    folder = left_behind(parent)
    long_ago = time.time() - LATER
    os.utime(folder, (long_ago, long_ago))
    with temporary_folder() as own:
        assert list(parent.iterdir()) == [own]


def test_a_new_folder_is_left_alone(parent: Path) -> None:
    folder = left_behind(parent)
    with temporary_folder():
        assert folder.is_dir()


def test_a_folder_whose_process_lives_is_left_alone(parent: Path) -> None:
    with temporary_folder() as folder:
        code = (
            "import sys; from pathlib import Path;"
            "from arriero.balancer.jobs.files_place import remove_left_behind;"
            "remove_left_behind(Path(sys.argv[1]), float('inf'))"
        )
        subprocess.run([sys.executable, "-c", code, str(parent)], check=True)
        assert folder.is_dir()


def test_what_is_no_such_folder_is_left_alone(parent: Path) -> None:
    elsewhere = left_behind(parent.parent / f"{parent.name}-elsewhere")
    (parent / f"{PREFIX}link").symlink_to(elsewhere, target_is_directory=True)
    (parent / f"{PREFIX}file").touch()
    (parent / f"{PREFIX}unlocked").mkdir()
    other = left_behind(parent, "of another user")
    (other / LOCK).unlink()
    (other / LOCK).symlink_to(elsewhere / LOCK)
    remove_left_behind(parent, float("inf"))
    assert elsewhere.is_dir() and other.is_dir()
    assert len(list(parent.iterdir())) == 4


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("sqlite:////srv/a.db", FilesPlace(Path("/srv/a.db-files"))),
        ("postgresql://h/d", None),
    ],
)
async def test_places_beside_a_store(state: str, place: FilesPlace | None) -> None:
    async with AsyncExitStack() as stack:
        assert place_beside(parse_store_url(state), stack) == place


async def test_in_memory_they_are_gone_at_the_end() -> None:
    async with AsyncExitStack() as stack:
        place = place_beside(parse_store_url("memory://"), stack)
        assert place is not None and place.folder is not None
        assert place.folder.is_dir()
    assert not place.folder.exists()


async def test_a_host_that_can_write_nowhere_still_has_a_balancer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(**_: object) -> None:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    async with AsyncExitStack() as stack:
        assert place_beside(parse_store_url("memory://"), stack) is None
