"""Small projectors with random weights: like LLaVA's, Qwen2-VL's and Gemma 3's, and their models.

A LLaVA-like one makes `LLAVA_TOKENS` tokens of any picture; it is for the demo model. A Qwen-like
one makes as many as the picture has merged patches, each with a place in two dimensions; it is for
a model that has such places. Those of a Gemma-like one look at each other, whatever their order.
The last two are for the demo model's weights under other architectures.
"""

import io
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

DEMO_MODEL = Path(__file__).parents[4] / "demo" / "arriero-demo.gguf"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a vision transformer; `out` is the width of the model that it is for."""

    width: int = 32
    heads: int = 2
    feed_forward: int = 64
    layers: int = 2
    patch: int = 14
    side: int = 56
    out: int = 256

    @property
    def num_patches(self) -> int:
        """Of a picture of `side` pixels; in LLaVA's way, its tokens."""
        return (self.side // self.patch) ** 2


SMALL = Sizes()
LLAVA_TOKENS = SMALL.num_patches
GEMMA, GEMMA_MERGED = Sizes(side=224), 4
GEMMA_TOKENS = GEMMA.num_patches // GEMMA_MERGED**2
MEL_BINS, FRAMES, HEARD_TOKENS = 16, 3000, 50
"""Of sounds: bins and frames of half a minute, and how many tokens it becomes."""
_WITH_PLACES = {"llama": ("qwen2vl", (8, 12, 12, 0)), "qwen3": ("qwen3vl", (24, 20, 20, 0))}
"""By a model's architecture, the one with places, and how its heads are shared out to them."""
_SCALE = 0.02
"""Rows like those of tokens: with larger ones rounding errors grow through the layers."""


def png(width: int, height: int, seed: int = 0) -> bytes:
    """A picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width * 3), np.uint8)
    rows = np.pad(pixels, ((0, 0), (1, 0)))
    out = io.BytesIO(b"")
    out.write(b"\x89PNG\r\n\x1a\n")
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")):
        checksum = zlib.crc32(kind + data)
        out.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum))
    return out.getvalue()


def write_llava(path: Path, sizes: Sizes = SMALL) -> Path:
    """A projector for the demo model, or for one of the width `sizes.out`."""
    writer = _projector(path, "mlp", sizes)
    draw = np.random.default_rng(3)
    _add(writer, draw, "v.class_embd", sizes.width)
    _add(writer, draw, "v.position_embd.weight", sizes.num_patches + 1, sizes.width)
    _add_norm(writer, "v.pre_ln", sizes.width)
    _add_layers(writer, draw, sizes)
    _add(writer, draw, "mm.0.weight", sizes.out, sizes.width)
    _add(writer, draw, "mm.0.bias", sizes.out)
    _add(writer, draw, "mm.2.weight", sizes.out, sizes.out, scale=_SCALE)
    _add(writer, draw, "mm.2.bias", sizes.out, scale=_SCALE)
    return _written(writer, path)


def write_ultravox(path: Path) -> Path:
    """A projector of sounds for the demo model: `HEARD_TOKENS` of each half minute."""
    sizes, draw = SMALL, np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "ultravox")
    values = {
        "embedding_length": sizes.width,
        "feed_forward_length": sizes.feed_forward,
        "block_count": sizes.layers,
        "projection_dim": sizes.out,
        "attention.head_count": sizes.heads,
        "num_mel_bins": MEL_BINS,
        "projector.stack_factor": FRAMES // 2 // HEARD_TOKENS,
    }
    for name, value in values.items():
        writer.add_uint32(f"clip.audio.{name}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for number, channels in ((1, MEL_BINS), (2, sizes.width)):
        _add(writer, draw, f"a.conv1d.{number}.weight", sizes.width, channels, 3)
        _add(writer, draw, f"a.conv1d.{number}.bias", sizes.width, 1)
    _add(writer, draw, "a.position_embd.weight", FRAMES // 2, sizes.width)
    _add_layers(writer, draw, sizes, "a", biased=("attn_q", "attn_v", "attn_out"))
    _add_norm(writer, "a.post_ln", sizes.width)
    stacked = sizes.width * (FRAMES // 2 // HEARD_TOKENS)
    writer.add_tensor("mm.a.norm_pre.weight", np.ones(stacked, np.float32))
    _add(writer, draw, "mm.a.mlp.1.weight", 2 * sizes.width, stacked)
    writer.add_tensor("mm.a.norm_mid.weight", np.ones(sizes.width, np.float32))
    _add(writer, draw, "mm.a.mlp.2.weight", sizes.out, sizes.width, scale=_SCALE)
    return _written(writer, path)


def wav(seconds: float, seed: int = 0, rate: int = 8000) -> bytes:
    """Noise in 16 bits, on one channel."""
    samples = np.random.default_rng(seed).integers(-9999, 9999, int(seconds * rate), np.int16)
    data = samples.tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH",
        b"RIFF",
        36 + len(data),
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate,
        2 * rate,
        2,
        16,
    )
    return head + struct.pack("<4sI", b"data", len(data)) + data


def write_qwen(path: Path, sizes: Sizes = SMALL) -> Path:
    """A projector for `write_qwen_model`'s model, or for another one of the width `sizes.out`."""
    merged = 4 * sizes.width
    writer = _projector(path, "qwen2vl_merger", sizes)
    draw = np.random.default_rng(5)
    _add(writer, draw, "v.patch_embd.weight.1", sizes.width, 3, sizes.patch, sizes.patch)
    _add_norm(writer, "v.post_ln", sizes.width)
    _add_layers(writer, draw, sizes)
    _add(writer, draw, "mm.0.weight", merged, merged)
    _add(writer, draw, "mm.0.bias", merged)
    _add(writer, draw, "mm.2.weight", sizes.out, merged, scale=_SCALE)
    _add(writer, draw, "mm.2.bias", sizes.out, scale=_SCALE)
    return _written(writer, path)


def write_qwen_model(path: Path, model: Path = DEMO_MODEL) -> Path:
    """The demo model as one of Qwen2-VL's architecture, or one of Qwen 3's as Qwen3-VL's."""
    reader = gguf.GGUFReader(model)
    architecture, sections = _WITH_PLACES[_architecture(reader)]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_rope_dimension_sections(sections)
    _copied(reader, writer, architecture)
    return _written(writer, path)


def _architecture(reader: gguf.GGUFReader) -> str:
    return str(reader.fields["general.architecture"].contents())


def write_gemma(path: Path) -> Path:
    """A projector for `write_gemma_model`'s model: `GEMMA_TOKENS` tokens of any picture."""
    writer = _projector(path, "gemma3", GEMMA)
    writer.add_uint32("clip.vision.projector.scale_factor", GEMMA_MERGED)
    draw = np.random.default_rng(9)
    _add(writer, draw, "v.position_embd.weight", GEMMA.num_patches, GEMMA.width)
    _add_norm(writer, "v.post_ln", GEMMA.width)
    _add_layers(writer, draw, GEMMA)
    _add(writer, draw, "mm.input_projection.weight", GEMMA.width, GEMMA.out, scale=0.05)
    writer.add_tensor("mm.soft_emb_norm.weight", np.ones(GEMMA.width, np.float32))
    return _written(writer, path)


def write_gemma_model(path: Path, window: int | None = None) -> Path:
    """The demo model as one of Gemma 3's architecture; most layers look back `window` tokens.

    What comes of it depends on all that it was shown: its attention is sharp, and its last layer is
    random, for with the demo model's own it would say the last token again and again.
    """
    reader = gguf.GGUFReader(DEMO_MODEL)
    writer = gguf.GGUFWriter(path, "gemma3")
    values = _copied(reader, writer, "gemma3")
    if window is not None:
        writer.add_sliding_window(window)
    width, heads = values["embedding_length"], values["attention.head_count"]
    norms = {
        "post_attention_norm": (width, 4.0),
        "post_ffw_norm": (width, 4.0),
        "attn_q_norm": (width // heads, 2.0),
        "attn_k_norm": (width // heads, 2.0),
    }
    for layer in range(values["block_count"]):
        for name, (size, weight) in norms.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.full(size, weight, np.float32))
    embedding = next(each for each in reader.tensors if each.name == "token_embd.weight")
    num_words = int(embedding.shape[1])
    _add(writer, np.random.default_rng(11), "output.weight", num_words, width, scale=0.05)
    return _written(writer, path)


def _copied(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, architecture: str) -> dict[str, int]:
    """The model's vocabulary, tensors and values, the whole numbers of which are returned."""
    values: dict[str, int] = {}
    former = f"{_architecture(reader)}."
    for name, field in reader.fields.items():
        if name.startswith(("tokenizer.", former)):
            kind, *inner = field.types
            own = name.replace(former, f"{architecture}.")
            writer.add_key_value(own, field.contents(), kind, inner[-1] if inner else None)
            if name.startswith(former) and isinstance(field.contents(), int):
                values[name.removeprefix(former)] = field.contents()
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return values


def _projector(path: Path, kind: str, sizes: Sizes) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    values = {
        "embedding_length": sizes.width,
        "feed_forward_length": sizes.feed_forward,
        "block_count": sizes.layers,
        "projection_dim": sizes.out,
        "attention.head_count": sizes.heads,
        "image_size": sizes.side,
        "patch_size": sizes.patch,
    }
    for name, value in values.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.25, 0.25, 0.25])
    shape = (sizes.width, 3, sizes.patch, sizes.patch)
    _add(writer, np.random.default_rng(1), "v.patch_embd.weight", *shape)
    return writer


_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_out")


def _add_layers(
    writer: gguf.GGUFWriter,
    draw: np.random.Generator,
    sizes: Sizes,
    prefix: str = "v",
    biased: Collection[str] = _ATTENTION,
) -> None:
    width, feed_forward = sizes.width, sizes.feed_forward
    for layer in range(sizes.layers):
        block = f"{prefix}.blk.{layer}"
        for norm in ("ln1", "ln2"):
            _add_norm(writer, f"{block}.{norm}", width)
        for name in _ATTENTION:
            _add(writer, draw, f"{block}.{name}.weight", width, width)
            if name in biased:
                _add(writer, draw, f"{block}.{name}.bias", width)
        for name, rows, columns in (
            ("ffn_up", feed_forward, width),
            ("ffn_down", width, feed_forward),
        ):
            _add(writer, draw, f"{block}.{name}.weight", rows, columns)
            _add(writer, draw, f"{block}.{name}.bias", rows)


def _add_norm(writer: gguf.GGUFWriter, name: str, width: int) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))


def _add(
    writer: gguf.GGUFWriter, draw: np.random.Generator, name: str, *shape: int, scale: float = 0.1
) -> None:
    writer.add_tensor(name, draw.standard_normal(shape).astype(np.float32) * np.float32(scale))


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
