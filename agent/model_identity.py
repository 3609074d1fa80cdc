"""Tells which models are the same: whose states fit, and whose answers can be continued.

A state, stored or of another agent, fits only where its *origin* is the same: the model, the engine
and the KV cache that computed it. Agents can go on with each other's answers if they have the same
*fingerprint*.
"""

from collections.abc import Sequence
from dataclasses import astuple
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from ..shared.continuation import CONTINUATION_VERSION
from ..shared.reports.model_info import ModelInfo
from .engine.load_options import LoadOptions
from .engine.loaded_model import Vocab
from .engine.prompt_store.stored_prompt import ModelIdentity, Origin

NUM_SAMPLES = 64
SAMPLE_BYTES = 64 * 1024
_DIGEST_BYTES = 16


def files_digest(paths: Sequence[Path]) -> str:
    """A digest of a model's files, in their order: sizes, and samples spread evenly over each.

    Both ends of each file are among its samples, so its header counts. Models of one architecture
    share their first megabytes (the vocabulary), and fine-tuned ones may share some tensors; hardly
    any two share every sample. Takes milliseconds. Raises `OSError`.
    """
    sizes = [path.stat().st_size for path in paths]
    digest = blake2b(" ".join(map(str, sizes)).encode(), digest_size=_DIGEST_BYTES)
    num_samples = max(NUM_SAMPLES // len(paths), 2)
    for path, size in zip(paths, sizes, strict=True):
        last = max(size - SAMPLE_BYTES, 0)
        with path.open("rb") as file:
            for number in range(num_samples):
                file.seek(last * number // (num_samples - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


ENGINE = "llama-cpp-python"


def identity_of(model: ModelInfo, paths: Sequence[Path]) -> ModelIdentity:
    """What tells `model`, loaded from the files `paths`, from others. Raises `OSError`."""
    return ModelIdentity(
        architecture=model.architecture,
        parameters=model.parameters,
        size_bytes=model.size_bytes,
        digest=files_digest(paths),
    )


def origin_of(model: ModelIdentity, options: LoadOptions, arithmetic: str | None) -> Origin:
    """The origin of what `model` computes here, loaded with `options`.

    A deterministic engine takes nothing that another `arithmetic` than its own computed. Whether
    values are transposed depends on the device; the state itself records that, and llama.cpp
    refuses one with another layout.
    """
    numbers = () if arithmetic is None else (f"deterministic {arithmetic}",)
    cache = ", ".join((*options.counted("cache"), *numbers))
    return Origin(model=model, engine=f"{ENGINE} {version(ENGINE)}", cache=cache)


def fingerprint(
    model: ModelIdentity,
    options: LoadOptions,
    vocab: Vocab,
    traits: tuple[str, ...],
    arithmetic: str | None = None,
) -> str:
    """The fingerprint of an agent that prepares and reads answers by these `traits`.

    It is made of what the same request and the same tokens must mean on both agents: the model
    file, its vocabulary, the chat template, the family that reads answers, the model's sampling
    defaults, the options of the engine that count, and how answers go on. How fast or with which
    layout an agent computes makes no difference, unless it is deterministic: then the other one has
    to have the same `arithmetic`.
    """
    parts = (
        CONTINUATION_VERSION,
        *astuple(model),
        *options.counted("fingerprint"),
        vocab.size,
        *sorted(vocab.end_tokens),
        vocab.bos_text,
        vocab.eos_text,
        *traits,
        *(() if arithmetic is None else ("deterministic", arithmetic)),
    )
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(b"%d %b" % (len(text := str(part).encode(errors="replace")), text))
    return digest.hexdigest()
