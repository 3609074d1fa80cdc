"""What is said of paths that are no model."""

from pathlib import Path

import pytest

from arriero.agent.engine.llama.model_file import check_model_file
from arriero.agent.engine.model_error import ModelError


def complaint(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        check_model_file(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_missing_file(tmp_path: Path) -> None:
    assert "does not exist: check --model" in complaint(tmp_path / "none.gguf")


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in complaint(tmp_path)


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be read" in complaint(tmp_path / "file" / "model.gguf")


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 a zip"])
def test_another_format(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert "not in GGUF format" in complaint(path)


def test_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    check_model_file(path)
