"""The demo model's facts, and broken copies of it."""

from pathlib import Path

import pytest

from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.loaded_model import ModelError


def test_facts(model_path: Path) -> None:
    model = Model(model_path, gpu_layers=0)
    assert model.architecture in ("llama", "qwen2", "qwen3")
    assert model.parameters > 1_000_000
    assert 1_000_000 < model.size_bytes <= model_path.stat().st_size
    assert model.trained_context >= 2048
    assert model.keep_for % 6 == 0
    assert 64 <= model.keep_for // 6 <= 4096
    assert model.chat_template is not None
    assert "<|im_start|>" in model.chat_template
    model.free()


@pytest.mark.parametrize("part", [0.9, 0.5, 0.001])
def test_a_truncated_file(model_path: Path, tmp_path: Path, part: float) -> None:
    data = model_path.read_bytes()
    path = tmp_path / "torn.gguf"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ModelError, match=r"torn\.gguf cannot be loaded: \w+") as caught:
        Model(path, gpu_layers=0)
    assert "gave no reason" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_of_junk(tmp_path: Path) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"junk\.gguf cannot be loaded: .*version"):
        Model(path, gpu_layers=0)


def test_errors_of_loading_are_not_logged_besides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError):
        Model(path, gpu_layers=0)
    assert caplog.messages == []
