"""Models are known apart by what they are, not by where they lie."""

from dataclasses import replace
from pathlib import Path

from arriero.agent.engine.origin import origin_of
from arriero.shared.messages import ModelInfo

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
