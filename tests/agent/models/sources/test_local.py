"""A path on this host."""

import hashlib
from pathlib import Path

import pytest

from arriero.agent.models.port import FetchError
from arriero.agent.models.sources.local import locate
from arriero.shared.models.sources import LocalFile


def written(path: Path, data: bytes = b"GGUF-data") -> LocalFile:
    path.write_bytes(data)
    return LocalFile(str(path))


def test_a_file_is_where_it_is(tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf")
    located = locate(source, hashlib.sha256(b"GGUF-data").hexdigest())
    assert located.paths == (tmp_path / "m.gguf",)
    assert located.remotes == located.kept == ()


def test_all_files_of_a_split_model_must_be_there(tmp_path: Path) -> None:
    written(tmp_path / "m-00001-of-00002.gguf")
    second = tmp_path / "m-00002-of-00002.gguf"
    with pytest.raises(FileNotFoundError) as caught:
        locate(LocalFile(str(tmp_path / "m-00001-of-00002.gguf")), None)
    assert caught.value.filename == str(second)

    written(second)
    assert len(locate(LocalFile(str(second)), None).paths) == 2


def test_another_checksum_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        locate(written(tmp_path / "m.gguf"), "0" * 64)
    assert caught.value.code == "wrong_checksum"


def test_another_format_is_told(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        locate(written(tmp_path / "m.gguf", b"PK\x03\x04"), None)
    assert caught.value.code == "not_a_gguf"
