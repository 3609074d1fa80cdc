"""Models are known apart by what they are, not by where they lie."""

from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store.model_identity import (
    NUM_SAMPLES,
    SAMPLE_BYTES,
    file_digest,
    origin_of,
)
from arriero.shared.reports.model_info import ModelInfo


def digest_of(folder: Path, content: bytes) -> str:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return file_digest(path)


@pytest.mark.parametrize("size", [0, 1, SAMPLE_BYTES, SAMPLE_BYTES + 1, 3 * SAMPLE_BYTES])
def test_small_files_are_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(size)
    digest = digest_of(tmp_path, content)
    assert digest_of(tmp_path, content) == digest
    assert digest_of(tmp_path, content + b"\0") != digest
    for position in {0, size // 2, size - 1} if size else set():
        changed = bytearray(content)
        changed[position] = 1
        assert digest_of(tmp_path, bytes(changed)) != digest


def test_a_part_of_a_large_file_changes_it(tmp_path: Path) -> None:
    size = 2 * NUM_SAMPLES * SAMPLE_BYTES
    content = bytearray(size)
    digest = digest_of(tmp_path, bytes(content))
    for start in (0, size // 3, size // 2, size - 2 * SAMPLE_BYTES):
        content[start : start + 2 * SAMPLE_BYTES] = b"x" * (2 * SAMPLE_BYTES)
        before, digest = digest, digest_of(tmp_path, bytes(content))
        assert digest != before


def test_a_missing_file_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_digest(tmp_path / "nothing")


INFO = ModelInfo(name="m", architecture="qwen3", parameters=7, size_bytes=14, context_size=4096)


def test_the_weights_count_and_not_the_place(tmp_path: Path) -> None:
    here, there, other = (tmp_path / name for name in ("here", "there", "other"))
    here.write_bytes(b"weights")
    there.write_bytes(b"weights")
    other.write_bytes(b"Weights")
    origin = origin_of(INFO, here)
    assert origin_of(replace(INFO, name="n", context_size=16), there) == origin
    assert origin_of(INFO, other) != origin
    assert origin_of(replace(INFO, parameters=8), here) != origin
    assert origin.engine.startswith("llama-cpp-python 0.")
