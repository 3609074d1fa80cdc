"""The model that kernels are checked with: a file that llama.cpp takes."""

from pathlib import Path

import numpy as np

from arriero.agent.engine.llama.kernels.check import compute
from arriero.agent.engine.llama.kernels.check_model import VOCAB_SIZE, check_model


def test_llama_cpp_computes_logits_of_the_usual_size(tmp_path: Path) -> None:
    path = tmp_path / "check.gguf"
    path.write_bytes(check_model())
    logits = compute(path, threads=2, use_extra_buffers=False)
    assert logits.shape[1] == VOCAB_SIZE
    assert np.all((logits.std(axis=1) > 0.3) & (logits.std(axis=1) < 3))


def test_it_is_small_and_always_the_same() -> None:
    assert len(check_model()) < 1_500_000
    assert check_model() == check_model()
