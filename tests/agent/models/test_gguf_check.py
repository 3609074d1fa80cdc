"""What is no model is refused, and why."""

import os
from io import BytesIO
from pathlib import Path

import pytest

from arriero.agent.gguf.header import GgufHeader, read_header
from arriero.agent.models.gguf_check import check_is_model, check_model, check_start
from arriero.agent.models.port import FetchError
from tests.agent.gguf.gguf_files import header

PLAIN = header({"general.architecture": "llama"})


def read(data: bytes) -> GgufHeader:
    return read_header(BytesIO(data))


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


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"general.type": "adapter", "general.architecture": "llama"}, "is an adapter (LoRA), not"),
        ({"general.type": "mmproj"}, "is a projector, not"),
        ({"general.architecture": "clip"}, "is a projector, not"),
    ],
)
def test_what_goes_beside_a_model_is_none(metadata: dict[str, str], why: str) -> None:
    with pytest.raises(FetchError) as caught:
        check_is_model(read(header(metadata)), "file:///x.gguf")
    assert caught.value.code == "not_a_model"
    assert caught.value.message.startswith(f"file:///x.gguf {why}")
    check_is_model(read(PLAIN), "file:///x.gguf")
