"""`--files`: what may be given, and what follows."""

from pathlib import Path

import pytest

from arriero.balancer.jobs.blobs.local import LocalBlobs
from arriero.balancer.jobs.blobs.place import FilesPlace, open_blobs, parse_place, work_folder
from arriero.balancer.jobs.blobs.port import BlobsAway
from arriero.balancer.jobs.blobs.remote import RemoteBlobs


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
