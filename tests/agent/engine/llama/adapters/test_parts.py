"""Adapters' files are cut between weights, and lose nothing by it."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from arriero.agent.engine.llama.adapters.parts import parts_of

Tensors = dict[str, NDArray[np.float32]]

WEIGHTS = [f"blk.{layer}.attn_{name}.weight" for layer in range(4) for name in "qkv"]
SIZE = 4 * (2 * 8 + 8 * 3)
"""Bytes of the two tensors of a weight."""


def written(path: Path, tensors: Tensors, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_type("adapter")
    writer.add_float32("adapter.lora.alpha", 2.0)
    writer.add_array("general.tags", ["a tag", "another"])
    writer.add_array("general.numbers", [1, 2, 3])
    for name, rows in tensors.items():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def drawn() -> Tensors:
    """As converters write them: some have all of one kind first."""
    draw = np.random.default_rng(0)
    shapes = {"lora_a": (2, 8), "lora_b": (8, 3)}
    return {
        f"{weight}.{end}": draw.standard_normal(shape, np.float32)
        for end, shape in shapes.items()
        for weight in WEIGHTS
    }


def read(path: Path) -> tuple[Tensors, dict[str, object]]:
    reader = gguf.GGUFReader(path)
    tensors = {each.name: np.array(each.data) for each in reader.tensors}
    facts = {name: field.contents() for name, field in reader.fields.items()}
    return tensors, {name: fact for name, fact in facts.items() if "tensor_count" not in name}


@pytest.mark.parametrize("alignment", [None, 64])
def test_each_weight_is_in_one_part_and_all_say_what_the_file_says(
    tmp_path: Path, alignment: int | None
) -> None:
    tensors = drawn()
    path = written(tmp_path / "whole.gguf", tensors, alignment)
    _, facts = read(path)
    found: Tensors = {}
    sizes = []
    for part in parts_of(path, most=4 * SIZE):
        some, said = read(part)
        assert said == facts
        weights = {name.rpartition(".")[0] for name in some}
        assert len(some) == 2 * len(weights), "both tensors of each"
        assert not found.keys() & some.keys()
        found |= some
        sizes.append(sum(rows.nbytes for rows in some.values()))
    assert found.keys() == tensors.keys()
    assert all(np.array_equal(found[name], rows) for name, rows in tensors.items())
    assert len(sizes) >= 3
    assert max(sizes) <= 4 * SIZE


def test_a_part_is_gone_when_the_next_one_comes(tmp_path: Path) -> None:
    parts = parts_of(written(tmp_path / "whole.gguf", drawn()), most=SIZE)
    first = next(parts)
    assert first.exists()
    second = next(parts)
    assert not first.exists()
    parts.close()
    assert not second.exists()


def test_a_weight_that_is_larger_is_a_part_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "whole.gguf", drawn())
    assert [len(read(part)[0]) for part in parts_of(path, most=1)] == [2] * len(WEIGHTS)


def test_a_small_file_is_its_own_only_part(tmp_path: Path) -> None:
    path = written(tmp_path / "whole.gguf", drawn())
    assert list(parts_of(path, most=path.stat().st_size)) == [path]


def test_what_cannot_be_read_like_that_is_left_to_llama_cpp(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.gguf", drawn()).read_bytes()
    damaged = tmp_path / "damaged.gguf"
    for data in (b"?" + whole[1:], whole[:4] + b"\x09" + whole[5:], whole[:300], b"GGUF", b""):
        damaged.write_bytes(data)
        assert list(parts_of(damaged, most=-1)) == [damaged]


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """Whatever the header says, parts come of it or the file itself."""
    whole = written(tmp_path / "whole.gguf", drawn()).read_bytes()
    damaged = tmp_path / "damaged.gguf"
    for place in range(0, 1200, 7):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        num_parts = sum(1 for _ in parts_of(damaged, most=SIZE))
        assert 1 <= num_parts <= 2 * len(WEIGHTS)
