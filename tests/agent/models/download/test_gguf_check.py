"""Whether a file can be a model."""

import os
from pathlib import Path

import pytest

from arriero.agent.models.download.gguf_check import check_model, check_start
from arriero.agent.models.port import FetchError


def test_a_gguf_has_a_size(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + b"x" * 10)
    assert check_model(path, "m") == 14


@pytest.mark.parametrize("data", [b"", b"GGU", b"<html>sign in</html>"])
def test_another_file_is_refused_with_its_beginning(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(FetchError) as caught:
        check_model(path, "the file")
    assert caught.value.code == "not_a_gguf"
    assert repr(data[:4])[2:-1] in caught.value.message


def test_a_folder_and_a_pipe_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(FetchError) as caught:
            check_model(path, str(path))
        assert caught.value.code == "not_a_gguf"


def test_the_start_of_a_gguf_is_enough() -> None:
    check_start(b"GGUF\x03\x00", "m")
