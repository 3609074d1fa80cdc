"""Identifies models: whose states fit, and whose answers can be continued.

A state, stored or from another agent, fits only if its *origin* is the same: the model, the engine
and the KV cache that computed it. Agents can continue each other's answers if they have the same
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
    """Return a digest of a model's files in order: their sizes, and samples spread over each.

    The samples include both ends of each file, so its header counts. Models of one architecture
    share their first megabytes (the vocabulary), and fine-tuned models may share some tensors.
    Hardly any two models share every sample. Takes milliseconds. Raises `OSError`.
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
    """Return the identity of `model`, loaded from the files `paths`. Raises `OSError`."""
    return ModelIdentity(
        architecture=model.architecture,
        parameters=model.parameters,
        size_bytes=model.size_bytes,
        digest=files_digest(paths),
    )


def origin_of(model: ModelIdentity, options: LoadOptions, arithmetic: str | None) -> Origin:
    """Return the origin of states that `model`, loaded with `options`, computes here.

    A deterministic engine accepts no states from another `arithmetic`. The origin does not say if
    values are transposed, which depends on the device: the state records it, and llama.cpp refuses
    another layout.
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
    """Return the fingerprint of an agent that prepares and reads answers by these `traits`.

    The fingerprint covers everything that gives the same request and tokens their meaning: the
    model file, its vocabulary, the chat template, the family that reads answers, the model's
    sampling defaults, the engine options that count, and the version of continuations. Speed and
    layout make no difference, unless the agent is deterministic: then the other agent must have
    the same `arithmetic`.
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
