"""The frame of each benchmark: flags, the turns of its sides, a table, and a file."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from rich.console import Console
from rich.table import Table

from bench.figures import RequestsFailed
from bench.models import DEMO, SHAPES, Real, Shape, shape_named
from bench.store import RESULTS, machine
from demo.packaged import MODELS

T = TypeVar("T")

_WIDTH = 200
"""Columns of a table if the output is no terminal."""


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
    """A model of `bench.models` or `demo.packaged` by name, `demo`, or a GGUF file."""
    if text in (*MODELS, DEMO.name) or Path(text).is_file():
        return Real(text)
    try:
        return shape_named(text)
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no model {error.args[0]}") from None


class Flags(argparse.ArgumentParser):
    """The flags of `python -m bench.NAME`. Those that several benchmarks have are methods."""

    def __init__(self, name: str, about: str | None) -> None:
        super().__init__(prog=f"python -m bench.{name}", description=about)

    def rounds(self, default: int) -> None:
        """Add `--rounds`."""
        help = f"times each side is measured ({default})"
        self.add_argument("--rounds", type=at_least(1), default=default, help=help)

    def threads(self, default: int | None = None) -> None:
        """Add `--threads`, by default one for each core."""
        default = default or os.cpu_count() or 1
        help = f"threads of each engine ({default})"
        self.add_argument("--threads", type=at_least(1), default=default, help=help)

    def file(self, default: Path | str) -> None:
        """Add `--model`: a GGUF file."""
        help = f"a GGUF file, or {' or '.join(SHAPES)} by name"
        self.add_argument("--model", type=model_file, default=default, help=help)

    def shape(self, default: str) -> None:
        """Add `--model`: the name of a model that `bench.make_model` makes."""
        self.add_argument("--model", choices=SHAPES, default=default, help=f"({default})")


def in_turn(sides: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each side once a round, which begins with another side each time; rounds count from 1."""
    for number in range(1, rounds + 1):
        first = (number - 1) % len(sides)
        for side in (*sides[first:], *sides[:first]):
            yield number, side


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run the benchmark. Ends the program with a line if a request failed."""
    try:
        return uvloop.run(work)
    except* RequestsFailed as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise SystemExit(f"bench: {first}") from failed


def print_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str] | None], *, left: int = 1
) -> None:
    """Print a table whose first `left` columns are words; a row of `None` is a line."""
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def save(name: str, document: dict[str, Any]) -> None:
    """Writes `bench/results/<name>.json` and says so."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **document}, indent=2, default=str) + "\n")
    print(f"written to {path}")
