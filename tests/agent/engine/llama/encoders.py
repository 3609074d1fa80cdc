"""Small encoders with random weights, in BERT's architecture: one that embeds, one that ranks."""

from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, FEED_FORWARD, LAYERS, CONTEXT = 32, 2, 64, 2, 64
WORDS = ("once", "upon", "a", "time", "llama", "alpaca", "slot", "queue")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
TOKENS = SPECIAL + tuple(f"\N{LOWER ONE EIGHTH BLOCK}{word}" for word in WORDS)


def write_encoder(path: Path, *, pooling: gguf.PoolingType) -> Path:
    """With `PoolingType.RANK` it has a head that gives one score."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    add_vocabulary(writer)
    _add_tensors(writer, ranks=pooling == gguf.PoolingType.RANK)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_vocabulary(writer: gguf.GGUFWriter) -> None:
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_types([control] * len(SPECIAL) + [normal] * len(WORDS))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_add_bos_token(True)


def _add_tensors(writer: gguf.GGUFWriter, *, ranks: bool) -> None:
    draw = np.random.default_rng(7)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.standard_normal(shape).astype(np.float32) * 0.2)

    add("token_embd.weight", len(TOKENS), WIDTH)
    add("token_types.weight", 2, WIDTH)
    add("position_embd.weight", CONTEXT, WIDTH)
    for end in ("weight", "bias"):
        add(f"token_embd_norm.{end}", WIDTH)
    for layer in range(LAYERS):
        sizes = {"attn_q": WIDTH, "attn_k": WIDTH, "attn_v": WIDTH, "attn_output": WIDTH}
        for name, rows in (sizes | {"ffn_up": FEED_FORWARD}).items():
            add(f"blk.{layer}.{name}.weight", rows, WIDTH)
            add(f"blk.{layer}.{name}.bias", rows)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD)
        add(f"blk.{layer}.ffn_down.bias", WIDTH)
        for norm in ("attn_output_norm", "layer_output_norm"):
            for end in ("weight", "bias"):
                add(f"blk.{layer}.{norm}.{end}", WIDTH)
    if ranks:
        add("cls.weight", WIDTH, WIDTH)
        add("cls.bias", WIDTH)
        add("cls.output.weight", 1, WIDTH)
        add("cls.output.bias", 1)
