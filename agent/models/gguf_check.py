"""Checks that a file is a model in GGUF format, before it is fetched, kept or loaded."""

import stat
from pathlib import Path

from ..gguf.header import MAGIC, GgufHeader
from .port import FetchError


def check_is_model(header: GgufHeader, called: str) -> None:
    """Raise `FetchError` if the file is an adapter or a projector; `called` names the file."""
    kind = header.metadata.get("general.type")
    if kind == "adapter":
        raise FetchError(
            "not_a_model",
            f"{called} is an adapter (LoRA), not a model",
            "set the model that it was made for, with this file among its `adapters`",
        )
    if kind == "mmproj" or header.architecture == "clip":
        raise FetchError(
            "not_a_model",
            f"{called} is a projector, not a model",
            "set the model that it belongs to, with this file as its `projector`",
        )


def check_model(path: Path, called: str) -> int:
    """Return the size of `path` in bytes.

    Raises `FetchError`, which names the file as `called`, unless `path` is a regular file that
    starts as a GGUF. Raises `OSError` if it cannot be read.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise FetchError("not_a_gguf", f"{called} is not a file", "name the .gguf file itself")
    with path.open("rb") as file:
        check_start(file.read(len(MAGIC)), called)
    return facts.st_size


def check_start(start: bytes, called: str) -> None:
    """Raise `FetchError` unless `start`, the first bytes of a file, is the start of a GGUF."""
    if not start.startswith(MAGIC):
        raise FetchError(
            "not_a_gguf",
            f"{called} is not in GGUF format: it begins with {start[:16]!r}",
            "name a .gguf file; llama.cpp's convert_hf_to_gguf.py makes one from other formats",
        )
