"""The demo model's facts, and broken copies of it."""

from pathlib import Path

import pytest

from arriero.agent.engine.llama.model import Model, check_model_file
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from bench.small_models import ARCHITECTURES, PLAIN, RECURRENT, WINDOW, WINDOWED, write

GGUF_TEXT = 8
"""GGUF's number for values that are text."""


def test_facts(model_path: Path) -> None:
    model = Model(model_path, LoadOptions(gpu_layers=0))
    assert model.architecture in ("llama", "qwen2", "qwen3")
    assert model.parameters > 1_000_000
    assert 1_000_000 < model.size_bytes <= model_path.stat().st_size
    assert model.trained_context >= 2048
    assert model.chat_template is not None
    assert "<|im_start|>" in model.chat_template
    model.free()


@pytest.mark.parametrize("part", ["", "-00001-of-00003"])
def test_a_part_of_a_split_file_has_the_name_of_the_whole(
    model_path: Path, tmp_path: Path, part: str
) -> None:
    path = tmp_path / f"llama-of-1-Q8_0{part}.gguf"
    path.symlink_to(model_path)
    model = Model(path, LoadOptions(gpu_layers=0))
    assert (model.name, model.quantization) == ("llama-of-1-Q8_0", "F16")
    model.free()


def test_a_template_for_tools(model_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.gguf"
    path.write_bytes(
        with_text(model_path.read_bytes(), "tokenizer.chat_template.tool_use", "{{1}}")
    )
    model = Model(path, LoadOptions(gpu_layers=0))
    assert model.tool_template is not None
    assert model.tool_template.rstrip() == "{{1}}"
    assert "<|im_start|>" in (model.chat_template or "")
    model.free()


def test_without_a_template_for_tools(model_path: Path) -> None:
    model = Model(model_path, LoadOptions(gpu_layers=0))
    assert model.tool_template is None
    model.free()


def with_text(gguf: bytes, key: str, text: str) -> bytes:
    """`gguf` with one more text among its facts, padded so that the tensors stay aligned."""
    head, num_facts, rest = gguf[:16], int.from_bytes(gguf[16:24], "little"), gguf[24:]
    text += " " * (-(8 + len(key) + 4 + 8 + len(text)) % 64)
    fact = b"".join(
        (
            len(key).to_bytes(8, "little"),
            key.encode(),
            GGUF_TEXT.to_bytes(4, "little"),
            len(text).to_bytes(8, "little"),
            text.encode(),
        )
    )
    return head + (num_facts + 1).to_bytes(8, "little") + fact + rest


@pytest.mark.parametrize("part", [0.9, 0.5, 0.001])
def test_a_truncated_file(model_path: Path, tmp_path: Path, part: float) -> None:
    data = model_path.read_bytes()
    path = tmp_path / "torn.gguf"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ModelError, match=r"torn\.gguf cannot be loaded: \w+") as caught:
        Model(path, LoadOptions(gpu_layers=0))
    assert "gave no reason" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_of_junk(tmp_path: Path) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"junk\.gguf cannot be loaded: .*version"):
        Model(path, LoadOptions(gpu_layers=0))


def test_errors_of_loading_are_not_logged_besides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError):
        Model(path, LoadOptions(gpu_layers=0))
    assert caplog.messages == []


# ---- files that are no models


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


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_can_be_shared_of_a_sequence(name: str, tmp_path: Path) -> None:
    model = Model(write(name, tmp_path / "model.gguf"), LoadOptions(gpu_layers=0))
    assert model.can_share == (name in PLAIN)
    assert model.has_checkpoints == (name not in PLAIN)
    assert model.is_recurrent == (name in RECURRENT)
    assert model.window == (WINDOW if name in WINDOWED else 0)
    assert (model.row_bytes > 0) == (name in RECURRENT)
    model.free()
