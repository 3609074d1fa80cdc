"""`arriero apply`: replaces the desired models by the models of a file."""

import argparse
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..arguments import Target, UsageError, make_parser, run
from ..desired_state import add_flags, change

EXAMPLE = """a file such as
  [[models]]
  name = "qwen3-8b"
  source = "hf://org/repo:Q4_K_M"
  slots = 8
  context_size = 8192
  agents = {replicas = 2}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Replace the desired models by the models of a file, after printing the changes."""
    return run(build_parser(), argv, _apply)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("apply", main.__doc__ or "")
    parser.add_argument(
        "file", help="TOML or JSON file with a list `models`; docs/models.md describes the format"
    )
    add_flags(parser)
    return parser


async def _apply(arguments: argparse.Namespace, target: Target) -> int | None:

    desired = read_state(Path(arguments.file))
    async with target.client() as client:
        return await change(client.management, lambda _before: desired, arguments)


def read_state(path: Path) -> dict[str, Any]:
    """Return the desired state in a file. Raises `UsageError`."""
    try:
        text = path.read_text(encoding="utf-8")
        state = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(state, dict) or not isinstance(state.get("models"), list):
        raise UsageError(f"{path}: must have a list `models`; {EXAMPLE}")
    return state
