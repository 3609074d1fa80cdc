"""The check of kernels: what counts as sound, and that every type of weights takes part."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from arriero.agent.engine.llama.kernels.check import Logits, compare, compute
from arriero.agent.engine.llama.kernels.check_model import VOCAB_SIZE, check_model
from arriero.agent.engine.llama.kernels.kernels import CHECK
from tests.waiting import HANGS


def rows(seed: int) -> Logits:
    return np.random.default_rng(seed).normal(size=(3, VOCAB_SIZE)).astype(np.float32)


def test_rounding_is_no_fault() -> None:
    assert compare(rows(1), rows(1) + np.float32(0.05) * rows(2)).is_sound


def test_one_row_of_noise_is_a_fault() -> None:
    broken = rows(1)
    broken[1] = rows(2)[1]
    verdict = compare(rows(1), broken)
    assert not verdict.is_sound
    assert "differ from the plain ones" in verdict.reason


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_a_fault(value: float) -> None:
    broken = rows(1)
    broken[2, 5] = value
    assert "not finite" in compare(rows(1), broken).reason


def test_rows_that_are_all_zero_are_a_fault() -> None:
    with np.errstate(invalid="ignore"):
        assert not compare(rows(1), np.zeros_like(rows(1))).is_sound


def test_weights_from_all_over_the_file_take_part(tmp_path: Path) -> None:
    path = tmp_path / "check.gguf"
    whole = check_model()
    path.write_bytes(whole)
    expected = compute(path, threads=2, use_extra_buffers=False)
    for part in (0.3, 0.5, 0.7, 0.9):
        place = int(len(whole) * part)
        path.write_bytes(whole[:place] + bytes(4000) + whole[place + 4000 :])
        assert not np.array_equal(compute(path, threads=2, use_extra_buffers=False), expected)


def test_as_a_process() -> None:
    done = subprocess.run((*CHECK, "2"), capture_output=True, text=True, timeout=HANGS, check=True)
    assert set(json.loads(done.stdout)) == {"is_sound", "reason"}
