"""Shapes, by what real models' headers say."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.gguf.header import read_header
from arriero.agent.gguf.model_shape import ModelShape, shape_of
from tests.agent.gguf.gguf_files import header

DEMO = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"
KIB = 1024


def shape(architecture: str, **more: Any) -> ModelShape:
    values = {f"{architecture}.{key.replace('__', '.')}": value for key, value in more.items()}
    data = header({"general.architecture": architecture, **values})
    found = shape_of(read_header(BytesIO(data)), {})
    assert found is not None
    return found


def cell_bytes(found: ModelShape, *, windows: bool = False) -> int:
    """Bytes of a cell in f16, of the layers that see everything or a window."""
    layers = [layer for layer in found.layers if layer.has_window is windows]
    return 2 * sum(layer.keys + layer.values for layer in layers)


def test_the_demo_model() -> None:
    with DEMO.open("rb") as file:
        header_of_demo = read_header(file)
    size = DEMO.stat().st_size
    sizes = header_of_demo.tensor_bytes(size)
    assert sum(sizes.values()) == size - header_of_demo.data_offset
    demo = shape_of(header_of_demo, sizes)
    assert demo is not None
    of_layers = sum(layer.dense for layer in demo.layers)
    assert of_layers == sum(each for name, each in sizes.items() if name.startswith("blk."))
    assert all(layer.dense > 0 and layer.experts == 0 for layer in demo.layers)
    assert cell_bytes(demo) * 8192 == 16 * 2**20  # as llama.cpp logs it
    assert demo.output > 0


def test_grouped_heads() -> None:
    qwen3 = shape(
        "qwen3",
        block_count=28,
        embedding_length=1024,
        attention__head_count=16,
        attention__head_count_kv=8,
        attention__key_length=128,
        attention__value_length=128,
    )
    assert cell_bytes(qwen3) == 28 * 8 * 256 * 2


def test_latent_attention_has_keys_alone() -> None:
    deepseek = shape(
        "deepseek2",
        block_count=61,
        embedding_length=7168,
        attention__head_count=128,
        attention__head_count_kv=1,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
        attention__value_length_mla=128,
    )
    assert cell_bytes(deepseek) == 61 * 576 * 2


@pytest.mark.parametrize("pattern", [None, 6, [True, True, True, True, True, False] * 8])
def test_windows(pattern: Any) -> None:
    gemma = shape(
        "gemma3",
        block_count=48,
        embedding_length=3840,
        attention__head_count=16,
        attention__head_count_kv=8,
        attention__key_length=256,
        attention__value_length=256,
        attention__sliding_window=1024,
        **({} if pattern is None else {"attention__sliding_window_pattern": pattern}),
    )
    assert gemma.window == 1024
    assert cell_bytes(gemma) == 64 * KIB
    assert cell_bytes(gemma, windows=True) == 5 * 64 * KIB


def test_some_layers_are_recurrent() -> None:
    qwen3next = shape(
        "qwen3next",
        block_count=48,
        embedding_length=2048,
        attention__head_count=16,
        attention__head_count_kv=2,
        attention__key_length=256,
        attention__value_length=256,
        full_attention_interval=4,
        ssm__inner_size=4096,
        ssm__state_size=128,
        ssm__conv_kernel=4,
        ssm__group_count=16,
    )
    assert cell_bytes(qwen3next) == 24 * KIB
    assert [layer.state > 0 for layer in qwen3next.layers[:4]] == [True, True, True, False]
    granite = shape(
        "granitehybrid",
        block_count=4,
        embedding_length=64,
        attention__head_count=4,
        attention__head_count_kv=[0, 0, 2, 0],
        ssm__inner_size=128,
        ssm__state_size=16,
        ssm__conv_kernel=4,
    )
    assert [layer.keys > 0 for layer in granite.layers] == [False, False, True, False]
    assert [layer.state > 0 for layer in granite.layers] == [True, True, False, True]
    mamba = shape(
        "mamba2", block_count=2, embedding_length=64, ssm__inner_size=128, ssm__state_size=16
    )
    assert [(layer.keys, layer.state > 0) for layer in mamba.layers] == [(0, True)] * 2
    falcon = shape(
        "falcon-h1",
        block_count=2,
        embedding_length=64,
        attention__head_count=4,
        attention__head_count_kv=2,
        ssm__inner_size=128,
        ssm__state_size=16,
    )
    assert all(layer.keys > 0 and layer.state > 0 for layer in falcon.layers)


def test_experts_by_layer() -> None:
    tensors = {
        "token_embd.weight": (8, 100),
        "blk.0.attn_q.weight": (8, 8),
        "blk.0.ffn_up_exps.weight": (8, 8, 4),
        "blk.0.ffn_down_exps.weight": (8, 8, 4),
        "blk.0.ffn_gate_inp.weight": (8, 4),
        "blk.1.ffn_up.weight": (8, 8),
        "output.weight": (8, 100),
    }
    about = {"general.architecture": "qwen3moe", "qwen3moe.block_count": 2}
    found = read_header(BytesIO(header({**about, "qwen3moe.embedding_length": 8}, tensors)))
    sizes = found.tensor_bytes(found.data_offset + 9088)
    assert sizes["blk.0.ffn_down_exps.weight"] == 8 * 8 * 4 * 4
    assert sizes["output.weight"] == 3200
    result = shape_of(found, sizes)
    assert result is not None
    assert [(layer.dense, layer.experts) for layer in result.layers] == [
        (256 + 128, 2 * 1024),
        (256, 0),
    ]
    assert result.output == 3200
    tied = shape_of(found, {name: size for name, size in sizes.items() if name != "output.weight"})
    assert tied is not None and tied.output == 3200  # the embeddings' once more


def test_a_header_that_says_too_little() -> None:
    found = read_header(BytesIO(header({"general.architecture": "llama"})))
    assert shape_of(found, {}) is None
