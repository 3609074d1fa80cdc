"""Checks that a path can be a model, before llama.cpp opens it."""

from pathlib import Path

from ..model_error import ModelError

MAGIC = b"GGUF"


def check_model_file(path: Path) -> None:
    """Raise `ModelError` unless `path` is a readable file that starts like a GGUF."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError:
        raise ModelError(f"model file {path} does not exist: check --model") from None
    except IsADirectoryError:
        raise ModelError(
            f"model {path} is a directory: --model wants the .gguf file in it"
        ) from None
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}") from error
    if magic != MAGIC:
        raise ModelError(
            f"model file {path} is not in GGUF format: --model wants a .gguf file, which "
            "llama.cpp's convert_hf_to_gguf.py makes from other formats"
        )
