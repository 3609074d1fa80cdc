"""A weight that is too large for a part is cut along the rank, and the parts add up to it."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from arriero.agent.engine.llama.adapters.parts import parts_of

ALPHA, RANK, INPUTS, OUTPUTS = 6.0, 12, 40, 24
Rows = NDArray[np.float32]


def written(path: Path, weight: str, a: Rows, b: Rows) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    writer.add_tensor(f"{weight}.lora_b", b)
    writer.add_tensor(f"{weight}.lora_a", a)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> tuple[float, Rows, Rows]:
    """Alpha, A with a row for each rank, and B with a column for each."""
    reader = gguf.GGUFReader(path)
    tensors = {each.name.rpartition(".")[2]: np.array(each.data) for each in reader.tensors}
    a, b = tensors["lora_a"], tensors["lora_b"]
    assert len(reader.tensors) == 2
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    return alpha, a.T if reader.tensors[0].name.startswith("token_embd") else a, b


def added(alpha: float, a: Rows, b: Rows) -> NDArray[np.float64]:
    """To the weight."""
    return b.astype(float) @ a.astype(float) * alpha / len(a)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("weight", ["blk.0.ffn_up.weight", "token_embd.weight"])
def test_the_parts_add_up_to_the_whole(tmp_path: Path, kind: type, weight: str) -> None:
    draw = np.random.default_rng(1)
    a = draw.standard_normal((RANK, INPUTS)).astype(kind)
    b = draw.standard_normal((OUTPUTS, RANK)).astype(kind)
    is_embedding = weight.startswith("token_embd")
    path = written(
        tmp_path / "whole.gguf", weight, np.ascontiguousarray(a.T) if is_embedding else a, b
    )
    most = (a.nbytes + b.nbytes) * 5 // RANK
    parts = [read(part) for part in parts_of(path, most=most)]
    assert [len(part[1]) for part in parts] == [5, 5, 2], "ranks"
    assert np.allclose(sum(added(*part) for part in parts), added(ALPHA, a, b))


def test_what_has_no_rank_stays_whole(tmp_path: Path) -> None:
    a, b = np.ones((3, INPUTS), np.float32), np.ones((OUTPUTS, 4), np.float32)
    path = written(tmp_path / "whole.gguf", "blk.0.ffn_up.weight", a, b)
    [(alpha, *_)] = [read(part) for part in parts_of(path, most=100)]
    assert alpha == ALPHA


def test_one_rank_is_the_least(tmp_path: Path) -> None:
    a, b = np.ones((2, INPUTS), np.float32), np.ones((OUTPUTS, 2), np.float32)
    path = written(tmp_path / "whole.gguf", "blk.0.ffn_up.weight", a, b)
    assert [len(read(part)[1]) for part in parts_of(path, most=1)] == [1, 1]
