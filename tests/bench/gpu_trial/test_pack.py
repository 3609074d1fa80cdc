"""Which of llama.cpp's files are packed."""

from pathlib import Path

import pytest

from bench.gpu_trial.pack import is_built


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ggml/src/ggml-cuda/mmq.cu", True),
        ("ggml/src/ggml.c", True),
        ("ggml/src/ggml-vulkan/ggml-vulkan.cpp", False),
        ("tools/server/server.cpp", True),
        ("tools/server/tests/unit/test_basic.py", False),
        ("tools/ui/CMakeLists.txt", True),
        ("tools/ui/src/app.html", False),
        ("models/ggml-vocab-qwen2.gguf", True),
        ("models/ggml-vocab-command-r.gguf", False),
        ("docs/build.md", False),
    ],
)
def test_what_is_packed_of_the_source(name: str, expected: bool) -> None:
    assert is_built(Path(name)) == expected
