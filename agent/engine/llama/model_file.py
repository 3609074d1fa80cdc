"""Checks that a path can be a model, before llama.cpp opens it."""

from pathlib import Path

from ..model_error import ModelError

MAGIC = b"GGUF"


def check_model_file(path: Path, setting: str = "--model") -> None:
    """Raise `ModelError` unless `path` is a readable file that starts like a GGUF.

    The error names the `setting` to check.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError:
        raise ModelError(f"model file {path} does not exist: check {setting}") from None
    except IsADirectoryError:
        raise ModelError(
            f"model {path} is a directory: {setting} wants the .gguf file in it"
        ) from None
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}") from error
    if magic != MAGIC:
        raise ModelError(
            f"model file {path} is not in GGUF format: {setting} wants a .gguf file, which "
            "llama.cpp's convert_hf_to_gguf.py makes from other formats"
        )
