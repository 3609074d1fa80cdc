"""A small recurrent model with random weights, in Mamba's architecture: the encoders' words."""

from pathlib import Path

import gguf
import numpy as np

from tests.agent.engine.llama.encoders import TOKENS, add_vocabulary

WIDTH, INNER, STATE, KERNEL, RANK, LAYERS = 64, 128, 16, 4, 4, 2


def write_recurrent(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_block_count(LAYERS)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    add_vocabulary(writer)
    _add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensors(writer: gguf.GGUFWriter) -> None:
    draw = np.random.default_rng(7)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.standard_normal(shape).astype(np.float32) * 0.1)

    add("token_embd.weight", len(TOKENS), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm.weight", WIDTH)
        add(f"{block}.ssm_in.weight", 2 * INNER, WIDTH)
        add(f"{block}.ssm_conv1d.weight", INNER, KERNEL)
        add(f"{block}.ssm_conv1d.bias", INNER)
        add(f"{block}.ssm_x.weight", RANK + 2 * STATE, INNER)
        add(f"{block}.ssm_dt.weight", INNER, RANK)
        add(f"{block}.ssm_dt.bias", INNER)
        add(f"{block}.ssm_a", INNER, STATE)
        add(f"{block}.ssm_d", INNER)
        add(f"{block}.ssm_out.weight", WIDTH, INNER)
