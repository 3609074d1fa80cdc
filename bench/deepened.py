"""A model made deeper without changing what it says.

Added layers write zeros: their outputs are added to what goes through, so the logits are the same,
and a step costs as much as with layers that do something. So a small trained model stands for one
of any depth, for instance to measure what a draft model saves.
"""

from pathlib import Path

import gguf
import numpy as np

from bench.store import cache_folder

_SILENT = ("attn_output.weight", "ffn_down.weight")
"""What writes into the stream that goes through all layers."""


def deepened(model: Path, factor: int) -> Path:
    """`model`, a `llama` in 16-bit floats, with `factor` times its layers; made once."""
    path = cache_folder() / f"{model.stem}-deep-{factor}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        _write(unfinished, gguf.GGUFReader(model), factor)
        unfinished.rename(path)
    return path


def _write(path: Path, model: gguf.GGUFReader, factor: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    num_layers = int(model.fields["llama.block_count"].contents())
    _copy_fields(writer, model)
    writer.add_block_count(factor * num_layers)
    for tensor in model.tensors:
        writer.add_tensor(tensor.name, tensor.data)
        block, number, *rest = tensor.name.split(".", 2)
        if block != "blk":
            continue
        name = ".".join(rest)
        weights = np.zeros_like(tensor.data) if name in _SILENT else tensor.data
        for layer in range(num_layers + int(number), factor * num_layers, num_layers):
            writer.add_tensor(f"blk.{layer}.{name}", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_fields(writer: gguf.GGUFWriter, model: gguf.GGUFReader) -> None:
    for name, field in model.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "llama.block_count"):
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
