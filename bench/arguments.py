"""Types of command-line arguments; errors say what would be right."""

import argparse
from collections.abc import Callable
from pathlib import Path

from bench.models import Real, Shape, shape_named
from demo.packaged import MODELS


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {number}")
        return number

    return parse


def model_file(text: str) -> Path:
    """A GGUF file, or one of the models of `bench.models` by name."""
    try:
        path, hint = shape_named(text).path, f": run `python -m bench.make_model {text}` first"
    except KeyError:
        path, hint = Path(text), ""
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}{hint}")
    return path


def model(text: str) -> Shape | Real:
    """A model of `bench.models` or `demo.packaged`, by name."""
    if text in MODELS:
        return Real(text)
    try:
        return shape_named(text)
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no model {error.args[0]}") from None
