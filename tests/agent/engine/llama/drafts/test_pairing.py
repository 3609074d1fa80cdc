"""Only a model with the same vocabulary drafts for another, and who does not is told why."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import pytest

from arriero.agent.engine.llama.drafts.pairing import check_pair
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.model_error import ModelError
from demo.conversations import DRAFT
from tests.agent.engine.llama.recurrent import write_recurrent

EOS = b"tokenizer.ggml.eos_token_id"


@contextmanager
def opened(path: Path) -> Iterator[Model]:
    model = Model(path, gpu_layers=0)
    try:
        yield model
    finally:
        model.free()


@pytest.fixture(scope="module")
def draft() -> Iterator[Model]:
    with opened(DRAFT) as model:
        yield model


def with_other_text(gguf: bytes) -> bytes:
    return gguf.replace("Ġbalancer".encode(), "Ġbalancex".encode(), 1)


def with_other_end(gguf: bytes) -> bytes:
    """Another token ends a generation, besides those that do so by their texts."""
    start = gguf.index(EOS) + len(EOS) + 4
    return gguf[:start] + bytes([9]) + gguf[start + 1 :]


def write_smaller(path: Path) -> Path:
    """The draft model without the last 32 tokens."""
    reader = gguf.GGUFReader(DRAFT)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "tokenizer.ggml.merges"):
            continue
        value = field.contents()
        if name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            value = value[:-32]
        elif name == "llama.vocab_size":
            value -= 32
        kind, *inner = field.types
        writer.add_key_value(name, value, kind, inner[-1] if inner else None)
    writer.add_array("tokenizer.ggml.merges", ["Ġ t"])
    for tensor in reader.tensors:
        data = tensor.data[:-32] if tensor.name == "token_embd.weight" else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(model: Model, draft: Model) -> str:
    """Why one cannot draft for the other: both are named."""
    with pytest.raises(ModelError) as raised:
        check_pair(model, draft)
    message = str(raised.value)
    assert f"--draft-model {draft.path} cannot draft for {model.path}: " in message
    return message


def test_the_demo_model_and_its_draft_model_go_together(model_path: Path, draft: Model) -> None:
    with opened(model_path) as model:
        check_pair(model, draft)
        check_pair(model, model)


def test_other_texts_and_other_ends_are_named(
    model_path: Path, tmp_path: Path, draft: Model
) -> None:
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(with_other_text(model_path.read_bytes()))
    with opened(changed) as model:
        assert "is ' balancer' instead of ' balancex'" in refusal(model, draft)
    changed.write_bytes(with_other_end(model_path.read_bytes()))
    with opened(changed) as model:
        assert "other tokens of its vocabulary end an answer" in refusal(model, draft)


def test_another_size_is_named(model_path: Path, tmp_path: Path) -> None:
    with opened(model_path) as model, opened(write_smaller(tmp_path / "small.gguf")) as small:
        assert "has 2016 tokens instead of 2048" in refusal(model, small)


def test_another_type_and_a_model_that_cannot_go_back_are_named(
    model_path: Path, tmp_path: Path, draft: Model
) -> None:
    with opened(write_recurrent(tmp_path / "recurrent.gguf")) as recurrent:
        assert "of another type (byte-level BPE instead of WordPiece)" in refusal(recurrent, draft)
        assert "cannot give up their last tokens" in refusal(draft, recurrent)
