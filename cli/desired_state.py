"""Changes the desired models: shows the changes after a dry run, asks, then saves them.

With `--wait` it then shows the models until they are loaded.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from ..shared.printable import printable
from .arguments import EXIT_FAILED, UsageError
from .output import console, issues, print_json

if TYPE_CHECKING:
    from rich.console import Group

    from ..client.management import DesiredState, Management
    from .screen import Screen

Sign = Literal["+", "-", "~", " "]
Json = dict[str, Any]

_STYLES = {"+": "green", "-": "red", "~": "yellow", " ": "dim"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`, `--yes` and `--wait`."""
    parser.add_argument("--dry-run", action="store_true", help="only print the changes")
    parser.add_argument("--yes", action="store_true", help="remove models without asking")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="show the progress until the agents have loaded the models; fail if one cannot",
    )


async def change(
    management: "Management",
    make: Callable[[Json], Json],
    arguments: argparse.Namespace,
    *,
    asks: bool = True,
) -> int | None:
    """Make `make(state)` the desired state, after printing the changes. Returns the exit code.

    With `asks`, the user is asked before models are removed. Raises `UsageError` if stdin is not a
    terminal.
    """
    before = await management.desired_state()
    desired = make(before.state)
    plan = await management.wish(desired, etag=before.etag, dry_run=True)
    after = plan.get("desired", desired)  # older balancers do not say it
    lines = list(changes(before.state, after))
    screen = console()
    if not arguments.json:
        _print(screen, lines, plan)
    if arguments.dry_run:
        if arguments.json:
            print_json(plan)
        return None
    removed = [text for sign, text in lines if sign == "-"]
    if removed and asks and not arguments.yes and not _agrees(removed):
        screen.print("nothing has changed")
        return None
    saved = await management.wish(desired, etag=before.etag)
    if arguments.json:
        print_json(saved)
    elif any(sign != " " for sign, _ in lines):
        shows = "" if arguments.wait else "; `arriero models` shows the progress"
        screen.print(f"applied{shows}")
        await _warn_of_memory(management, before, screen)
    if not arguments.wait:
        return None
    names = [model["name"] for model in after["models"]]
    return await _until_loaded(management, names, None if arguments.json else screen)


def _print(screen: "Screen", lines: Sequence[tuple[Sign, str]], plan: Json) -> None:
    if all(sign == " " for sign, _ in lines):
        screen.print("nothing to change")
    else:
        for sign, text in lines:
            line = f"{sign} {text}"
            screen.print(line, style=_STYLES[sign], soft_wrap=True)
        for step in plan.get("agents", ()):
            _print_step(screen, step)
    for model in plan.get("lacking", ()):
        for issue in model["issues"]:
            hint = f"; {issue['hint']}" if issue.get("hint") else ""
            words = f"! {model['name']}: {issue['message']}{hint}"
            screen.print(words, style="yellow", soft_wrap=True)


def _print_step(screen: "Screen", step: Json) -> None:
    what = " ".join(str(step[name]) for name in ("action", "model") if step.get(name))
    name = step.get("name") or step.get("agent")
    line = f"  {name}: {what} ({step.get('why', '')})"
    screen.print(line, style="dim", soft_wrap=True)


def _agrees(removed: Sequence[str]) -> bool:
    """Ask whether to remove these models."""
    names = printable(", ".join(removed))
    if not sys.stdin.isatty():
        raise UsageError(f"--yes: is needed to remove {names}, since stdin is not a terminal")
    sys.stdout.write(f"Remove {names}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _warn_of_memory(
    management: "Management", before: "DesiredState", screen: "Screen"
) -> None:
    """After the first change, warn if the balancer does not store the desired state."""
    if before.etag == '"0"' and (await management.about()).get("is_lasting") is False:
        screen.print(
            "! the balancer stores nothing (--state memory://): this is lost when it stops; "
            "start it with --state sqlite:///arriero.db",
            style="yellow",
            soft_wrap=True,
        )


# ---- how far the models are


async def _until_loaded(
    management: "Management", names: Sequence[str], screen: "Screen | None"
) -> int | None:
    """Show the models `names` until no agent has to load them any more. Returns the exit code.

    The balancer acts on a change a moment after accepting it, so two checks in a row must succeed.
    """
    from rich.live import Live

    models: list[Json] = []
    was_over = False
    is_live = screen is not None and screen.is_terminal
    async with aclosing(management.events()) as events:
        with Live(auto_refresh=False, console=screen) if is_live else nullcontext() as live:
            async for event in events:
                if event.name != "throughput":  # it comes once a second
                    continue
                listed = {each["name"]: each for each in await management.models()}
                models = [listed[name] for name in names if name in listed]
                if live is not None:
                    live.update(models_view(models), refresh=True)
                works = [agent["work"] for agent in await management.agents() if agent["work"]]
                is_over = (
                    len(models) == len(names)
                    and all(map(_is_over, models))
                    and all(work["phase"] in ("serving", "failed") for work in works)
                )
                if is_over and was_over:
                    break
                was_over = is_over
    if screen is not None and live is None:
        screen.print(models_view(models), soft_wrap=True)
    return EXIT_FAILED if any(model["issues"] for model in models) else None


def _is_over(model: Json) -> bool:
    """Return whether the model neither loads nor waits for a connected agent."""
    return model["status"] != "loading" and (model["status"] != "waiting" or bool(model["issues"]))


def models_view(models: Sequence[Json]) -> "Group":
    """Return the models as a table, then where each is placed and its issues."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("model", "status", "progress"):
        table.add_column(name)
    for name in ("agents", "slots", "waiting"):
        table.add_column(name, justify="right")
    lines: list[Text] = []
    for model in models:
        progress = model.get("progress")
        slots = model.get("slots") or {"busy": "-", "total": "-"}
        table.add_row(
            model["name"],
            model["status"],
            "" if progress is None else f"{progress:.0%}",
            str(len(model.get("agents") or ())),
            f"{slots['busy']}/{slots['total']}",
            str(model.get("waiting", "-")),
        )
        if model.get("placement"):
            lines.append(Text(printable(f"{model['name']}: {model['placement']}")))
        for words in issues(model).splitlines():
            lines.append(Text(printable(f"{model['name']}: {words}"), style="red"))
    return Group(table, *lines)


# ---- how two desired states differ, model by model


_DEFAULTS = {"agents": {"labels": {}, "replicas": "all"}, "preload": True}
"""The balancer's defaults for values that a model omits."""


def changes(old: Json, new: Json) -> Iterator[tuple[Sign, str]]:
    """Yield a sign and a line for each model: added, removed, changed or unchanged.

    If `new` omits a value, the balancer's default counts.
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
    common = [name for name in before if name in after]
    if common != [name for name in after if name in before]:
        yield "~", f"the order, in which models get agents: {', '.join(after)}"


def _fields(old: Json, new: Json) -> Iterator[str]:
    for key in new:
        before, after = old.get(key), new[key]
        if before == after:
            continue
        if isinstance(after, dict) and isinstance(before, dict | None):
            yield from _nested(key, before or {}, after)
        else:
            yield f"{key} {_shown(before)} -> {_shown(after)}"
    for key, value in old.items():
        if key not in new and value not in (None, [], {}, _DEFAULTS.get(key)):
            yield f"{key} {_shown(value)} -> default"


def _nested(key: str, old: Json, new: Json) -> Iterator[str]:
    """Yield nested differences: `replicas 1 -> all` of `agents`, `engine.gpu_layers 3 -> 4`."""
    prefix = "" if key == "agents" else f"{key}."
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if before != after:
            yield f"{prefix}{name} {_shown(before)} -> {_shown(after)}"


def _shown(value: object) -> str:
    """Return a word unchanged, `None` as none, any other value as JSON."""
    if value is None:
        return "none"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
