"""Identifies a model among stored prompts: a state fits only the model that computed it."""

from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from ....shared.reports.model_info import ModelInfo
from .stored_prompt import ModelIdentity, Origin

NUM_SAMPLES = 64
SAMPLE_BYTES = 64 * 1024
_DIGEST_BYTES = 16


def file_digest(path: Path) -> str:
    """A digest of the file's size and of samples spread evenly over it, both ends included.

    Models of one architecture share their first megabytes (the vocabulary), and fine-tuned ones may
    share some tensors; hardly any two share every sample. Takes milliseconds. Raises `OSError`.
    """
    size = path.stat().st_size
    digest = blake2b(str(size).encode(), digest_size=_DIGEST_BYTES)
    last = max(size - SAMPLE_BYTES, 0)
    with path.open("rb") as file:
        for number in range(NUM_SAMPLES):
            file.seek(last * number // (NUM_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


ENGINE = "llama-cpp-python"
CACHE = "f16 keys, f16 values"
"""llama.cpp's default, which every context here has. Whether values are transposed depends on
the device; the state itself records that, and llama.cpp refuses one with another layout."""


def identity_of(model: ModelInfo, path: Path) -> ModelIdentity:
    """What tells `model`, loaded from `path`, from others. Raises `OSError`."""
    return ModelIdentity(
        architecture=model.architecture,
        parameters=model.parameters,
        size_bytes=model.size_bytes,
        digest=file_digest(path),
    )


def origin_of(model: ModelInfo, path: Path) -> Origin:
    """The origin of what `model`, loaded from `path`, computes. Raises `OSError`."""
    return Origin(
        model=identity_of(model, path),
        engine=f"{ENGINE} {version(ENGINE)}",
        cache=CACHE,
    )
