"""The `arriero` program: every installed command under one name."""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from inspect import getdoc
from pathlib import Path

from .nearest import meant

GROUP = "arriero.commands"
"""Name of the entry point group. Each entry point is a function from arguments to an exit code."""

_USAGE = """usage: arriero COMMAND [--FLAG VALUE ...]

Commands (each explains its flags with --help):"""

Command = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, with the remaining arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    if not arguments or arguments[0] in ("--help", "-h"):
        sys.stdout.write(_help(commands))
        return 0
    if arguments[0] == "--version":
        sys.stdout.write(f"arriero {version('arriero')}\n")
        return 0
    if arguments[0] not in commands:
        sys.stderr.write(f"arriero: {_unknown(arguments[0], list(commands))}\n")
        return 2
    return _load(commands[arguments[0]])(arguments[1:])


def _load(entry: EntryPoint) -> Command:
    command: Command = entry.load()
    return command


def _help(commands: dict[str, EntryPoint]) -> str:
    width = max(map(len, commands), default=0)
    lines = [
        f"  {name:<{width}}  {_described(entry).partition(chr(10))[0]}"
        for name, entry in sorted(commands.items())
    ]
    return "\n".join([_USAGE, *lines]) + "\n"


def _described(entry: EntryPoint) -> str:
    """Return the docstring of a command from its source, since importing all commands takes a
    second.
    """
    spec = find_spec(entry.module)
    source = Path(spec.origin) if spec and spec.origin else None
    if source is not None and source.suffix == ".py":
        for node in ast.parse(source.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name == entry.attr:
                return ast.get_docstring(node) or ""
    return getdoc(_load(entry)) or ""


def _unknown(word: str, known: list[str]) -> str:
    return f"unknown command {word!r}; {meant(word, known, 'see arriero --help')}"
