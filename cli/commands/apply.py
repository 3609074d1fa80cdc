"""`arriero apply`: replaces the desired models by those of a file."""

import argparse
import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ..arguments import Target, UsageError, make_parser
from ..boundary import run
from ..output import print_json

EXAMPLE = """a file such as
  [[models]]
  name = "qwen3-8b"
  source = "hf://org/repo:Q4_K_M"
  slots = 8
  context_size = 8192
  agents = {replicas = 2}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the models of a file the desired ones; says first what changes."""
    return run(build_parser(), argv, _apply)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = make_parser("apply", main.__doc__ or "")
    parser.add_argument("file", help="TOML or JSON: a list `models`, as in docs/api.md")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    return parser


async def _apply(arguments: argparse.Namespace, target: Target) -> None:
    from rich.console import Console

    from ...client import Client

    desired = read_state(Path(arguments.file))
    console = Console(highlight=False)
    async with Client(
        target.url, management=target.management, key=target.key, tls_ca=target.tls_ca
    ) as client:
        before = await client.management.desired_state()
        plan = await client.management.wish(desired, etag=before.etag, dry_run=True)
        if not arguments.json:
            for sign, text in changes(before.state, desired):
                console.print(f"{sign} {text}", style=_STYLES[sign], markup=False)
            for step in plan.get("agents", ()):
                _print_step(console, step)
        if arguments.dry_run:
            if arguments.json:
                print_json(plan)
            return
        after = await client.management.wish(desired, etag=before.etag)
    if arguments.json:
        print_json(after)
    else:
        console.print("applied; `arriero models` shows the progress")


_STYLES = {"+": "green", "-": "red", "~": "yellow", " ": "dim"}


def _print_step(console: Any, step: dict[str, Any]) -> None:
    what = " ".join(str(step[name]) for name in ("action", "model") if step.get(name))
    name = step.get("name") or step.get("agent")
    console.print(f"  {name}: {what} ({step.get('why', '')})", style="dim", markup=False)


def read_state(path: Path) -> dict[str, Any]:
    """The desired state in a file. Raises `UsageError`."""
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


# ---- how two desired states differ, model by model


_DEFAULTS = {"agents": {"labels": {}, "replicas": "all"}, "preload": True}
"""What the balancer fills in where a model does not say."""

Sign = Literal["+", "-", "~", " "]


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[Sign, str]]:
    """A sign and a line for each model that comes, goes or changes, or stays as it is.

    A value that `new` leaves out is the balancer's default.
    """
    before = {model["name"]: model for model in old.get("models", ())}
    after = {str(model.get("name")): model for model in new.get("models", ())}
    for name, model in after.items():
        if name not in before:
            yield "+", f"{name} from {model.get('source')}"
            continue
        different = list(_fields(before[name], model))
        yield ("~", f"{name}: {', '.join(different)}") if different else (" ", name)
    for name in before:
        if name not in after:
            yield "-", name


def _fields(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in new:
        if old.get(key) != new[key]:
            yield f"{key} {_shown(old.get(key))} -> {_shown(new[key])}"
    for key, value in old.items():
        if key not in new and value not in (None, [], {}, _DEFAULTS.get(key)):
            yield f"{key} {_shown(value)} -> default"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
