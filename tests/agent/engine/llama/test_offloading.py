"""How many layers GPUs are likely to hold; here they are stand-ins."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.engine.llama.devices import FoundDevice
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.llama.offloading import MARGIN, placed, with_layers_that_fit
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from tests.agent.gguf.gguf_files import header

GIB = 2**30
GPU = FoundDevice("CUDA0", "a card", "gpu", memory=16 * GIB, free=11 * GIB)


def mixture(folder: Path, num_layers: int = 4) -> Path:
    """A file of layers with experts: a header, and as many bytes as its tensors have (sparse)."""
    about = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": num_layers,
        "qwen3moe.embedding_length": 1024,
        "qwen3moe.attention.head_count": 8,
        "qwen3moe.attention.head_count_kv": 2,
        "qwen3moe.expert_count": 64,
    }
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (1024, 32_000)}
    for layer in range(num_layers):
        tensors[f"blk.{layer}.attn_q.weight"] = (1024, 1024)
        tensors[f"blk.{layer}.ffn_down_exps.weight"] = (1024, 4096, 64)  # 1 GiB
    data = header(about, {**tensors, "output.weight": (1024, 32_000)})
    path = folder / "mixture.gguf"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + 4 * sum(map(math.prod, tensors.values())) + 4 * 1024 * 32_000)
    return path


def options(**more: Any) -> LoadOptions:
    return LoadOptions(**{"gpu_layers": "auto", "slots": 2, "context_size": 2048, **more})


def test_a_model_that_fits_is_offloaded_whole(tmp_path: Path) -> None:
    found, said = placed(mixture(tmp_path), options(), [GPU])
    assert (found.gpu_layers, found.cpu_experts) == (5, 0)
    assert said.startswith("4 of 4 layers on CUDA0 (4.")


def test_experts_stay_in_memory_before_layers_do(tmp_path: Path) -> None:
    path = mixture(tmp_path)
    found, said = placed(path, options(), [replace(GPU, free=4 * GIB)])
    assert (found.gpu_layers, found.cpu_experts) == (5, 2)
    assert said.endswith("experts of 2 of these in host memory")
    found, _ = placed(path, options(n_cpu_moe=4), [replace(GPU, free=100 * GIB)])
    assert (found.gpu_layers, found.cpu_experts) == (5, 4)
    found, _ = placed(path, options(), [replace(GPU, free=MARGIN // 2)])
    assert found.gpu_layers == 0


def test_the_cache_counts_where_it_lies_and_as_wide_as_it_is(tmp_path: Path) -> None:
    path = mixture(tmp_path)

    def needed(**more: Any) -> int:
        return placed(path, options(context_size=65_536, **more), [GPU])[0].needed[0]

    cells = 2 * 65_536
    cache = 4 * cells * 2 * (128 + 128) * 2
    assert needed() - needed(kv_offload=False) == cache
    q8_0 = needed(cache_type_k="q8_0", cache_type_v="q8_0")
    assert 0.4 * cache < needed() - q8_0 < 0.8 * cache  # and that of the context that embeds


def test_layers_are_divided_as_they_are_asked_to_be(tmp_path: Path) -> None:
    path = mixture(tmp_path)
    two = [GPU, replace(GPU, name="CUDA1", free=3 * GIB)]
    found, _ = placed(path, options(tensor_split="0,1"), two)
    assert found.needed[0] == 0 < found.needed[1] <= 2 * GIB
    found, _ = placed(path, options(split_mode="none", main_gpu=1), two)
    assert found.needed[0] == 0 < found.needed[1] <= 2 * GIB
    found, _ = placed(path, options(), two)
    assert min(found.needed) > 0


def test_parts_of_a_model_are_added_up(tmp_path: Path) -> None:
    whole = mixture(tmp_path)
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    whole.rename(first)
    tensors = {f"blk.{layer}.ffn_up_exps.weight": (1024, 1024) for layer in range(4)}
    data = header({"general.architecture": "qwen3moe"}, tensors)
    second.write_bytes(data + bytes(4 * 4 * 2**20 + 32))
    alone = tmp_path / "alone.gguf"
    alone.symlink_to(first)
    both, one = (placed(path, options(), [GPU])[0].needed[0] for path in (first, alone))
    assert both - one >= 4 * 4 * 2**20


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    with pytest.raises(ModelError, match="cannot be read"):
        placed(path, options(), [GPU])
    path = tmp_path / "m.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    with pytest.raises(ModelError, match="set --gpu-layers to a number"):
        placed(path, options(), [GPU])


def test_weights_are_those_that_llama_cpp_loads(model_path: Path) -> None:
    shape_bytes, _ = placed(model_path, options(), [GPU])
    model = Model(model_path, LoadOptions(gpu_layers=0))
    num_layers, size = model.num_layers, model.size_bytes
    model.free()
    assert shape_bytes.gpu_layers == num_layers + 1
    assert shape_bytes.needed[0] > 0.8 * size


def test_a_number_stays(model_path: Path) -> None:
    for number in (-1, 0, 7):
        given = LoadOptions(gpu_layers=number)
        assert with_layers_that_fit(model_path, given) is given


def test_without_gpus_nothing_is_offloaded(model_path: Path) -> None:
    assert with_layers_that_fit(model_path, LoadOptions(gpu_layers="auto")) == LoadOptions(
        gpu_layers=0
    )


def test_a_device_that_is_not_there_is_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match="--device: there is no CUDA3"):
        with_layers_that_fit(model_path, LoadOptions(gpu_layers="auto", device="CUDA3"))
