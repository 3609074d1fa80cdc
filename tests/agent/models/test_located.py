"""What sources come to on this host."""

import hashlib
from pathlib import Path

import pytest

from arriero.agent.models.located import MAX_NAME, file_name, locate_on_host, locate_on_web
from arriero.agent.models.models_folder import ModelsFolder
from arriero.agent.models.port import FetchError
from arriero.shared.models.sources import LocalFile, WebFile


def written(path: Path, data: bytes = b"GGUF-data") -> LocalFile:
    path.write_bytes(data)
    return LocalFile(str(path))


def test_a_file_is_where_it_is(tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf")
    located = locate_on_host(source, hashlib.sha256(b"GGUF-data").hexdigest())
    assert located.paths == (tmp_path / "m.gguf",)
    assert located.remotes == located.kept == ()


def test_all_files_of_a_split_model_must_be_there(tmp_path: Path) -> None:
    written(tmp_path / "m-00001-of-00002.gguf")
    second = tmp_path / "m-00002-of-00002.gguf"
    with pytest.raises(FileNotFoundError) as caught:
        locate_on_host(LocalFile(str(tmp_path / "m-00001-of-00002.gguf")), None)
    assert caught.value.filename == str(second)

    written(second)
    assert len(locate_on_host(LocalFile(str(second)), None).paths) == 2


def test_another_checksum_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        locate_on_host(written(tmp_path / "m.gguf"), "0" * 64)
    assert caught.value.code == "wrong_checksum"


def test_another_format_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        locate_on_host(written(tmp_path / "m.gguf", b"PK\x03\x04"), None)
    assert caught.value.code == "not_a_gguf"


def test_a_url_is_one_download_with_a_place_of_its_own(folder: ModelsFolder) -> None:
    located = locate_on_web(WebFile("https://host/a/m.gguf?sig=secret"), "a" * 64, folder)
    (remote,) = located.remotes
    other = locate_on_web(WebFile("https://host/b/m.gguf"), None, folder)

    assert remote.url == "https://host/a/m.gguf?sig=secret"
    assert remote.called == "https://host/a/m.gguf"
    assert remote.sha256 == "a" * 64
    assert remote.file.name == "m.gguf"
    assert located.paths == located.kept == (remote.file,)
    assert other.paths[0] != remote.file


def test_a_split_model_is_several_beside_each_other(folder: ModelsFolder) -> None:
    located = locate_on_web(WebFile("https://host/m-00002-of-00002.gguf?k=1"), "a" * 64, folder)
    assert [remote.url for remote in located.remotes] == [
        "https://host/m-00001-of-00002.gguf?k=1",
        "https://host/m-00002-of-00002.gguf?k=1",
    ]
    assert len({path.parent for path in located.paths}) == 1
    assert [remote.sha256 for remote in located.remotes] == ["a" * 64, None]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/m.gguf", "m.gguf"),
        ("/a/m%2F..%2Fx.gguf", "m_.._x.gguf"),
        ("/a/", "_"),
        ("/..", "_"),
        ("/.hidden", "hidden"),
        ("/a%00b", "a_b"),
        ("/m.gguf.part", "m.gguf.part_"),
        ("/" + "x" * 1000, "x" * MAX_NAME),
    ],
)
def test_a_name_is_safe(path: str, name: str) -> None:
    assert file_name(path) == name
