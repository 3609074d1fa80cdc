"""`arriero completion`: a script for the shell that completes commands and flags."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from ...shared.command_line import GROUP
from ..arguments import Target, make_parser
from ..boundary import run_plain
from ..completions import SHELLS


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a completion script for bash, zsh or fish."""
    return run_plain(build_parser(), argv, _completion)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = make_parser("completion", main.__doc__ or "")
    parser.add_argument(
        "shell", choices=sorted(SHELLS), help="e.g. source <(arriero completion bash)"
    )
    return parser


def _completion(arguments: argparse.Namespace, _: Target) -> None:
    sys.stdout.write(SHELLS[arguments.shell](words()))


def words() -> Mapping[str, Sequence[str]]:
    """What may follow each installed command."""
    found = {}
    for entry in sorted(entry_points(group=GROUP)):
        module = sys.modules[entry.load().__module__]
        build = getattr(module, "build_parser", None)
        found[entry.name] = [] if build is None else _words(build())
    return found


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Choices of positional arguments, and long flags."""
    words: list[str] = []
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        choices = [] if action.option_strings else [str(each) for each in action.choices or ()]
        words += flags + choices
    return words
