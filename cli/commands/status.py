"""`arriero status`: agents, slots and the queue, updated live."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ...shared.printable import printable
from ..arguments import Target, make_parser, run
from ..fleet_state import FleetState
from ..output import console, duration, issues, namesakes, print_json, rate

if TYPE_CHECKING:
    from rich.console import Group


def main(argv: Sequence[str] | None = None) -> int:
    """Show agents, slots and the queue as they change."""
    return run(build_parser(), argv, _status)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("status", main.__doc__ or "")
    parser.add_argument("--once", action="store_true", help="print it once and exit")
    return parser


async def _status(arguments: argparse.Namespace, target: Target) -> None:
    from rich.live import Live

    state = FleetState()
    async with (
        target.client() as client,
        aclosing(client.management.events()) as events,
    ):
        if arguments.once or arguments.json or not sys.stdout.isatty():
            first = await anext(events)
            if arguments.json:
                print_json(first.data)
                return
            state.apply(first.name, first.data)
            while state.rate is None:  # it is measured over the next second
                event = await anext(events)
                state.apply(event.name, event.data)
            console().print(view(state))
            return
        with Live(auto_refresh=False, screen=False, console=console()) as live:
            async for event in events:
                state.apply(event.name, event.data)
                live.update(view(state), refresh=True)


def view(state: FleetState) -> "Group":
    """Return the fleet as tables, with rates once they are measured."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("agent")
    table.add_column("state")
    table.add_column("slots", justify="right")
    has_rates = state.rate is not None
    if has_rates:
        table.add_column("tok/s", justify="right")
    table.add_column("model")
    table.add_column("up", justify="right")
    problems = []
    for agent in sorted(state.agents.values(), key=lambda each: each["name"]):
        table.add_row(
            agent["name"],
            Text(printable(agent["state"]), style=_STYLES.get(agent["state"], "yellow")),
            f"{agent['slots']['busy']}/{agent['slots']['total']}",
            *([rate(state.rates.get(agent["id"], 0.0))] if has_rates else []),
            _models(agent),
            duration(agent["connected_seconds"]),
        )
        if words := issues(agent):
            problems.append(Text(f"{printable(agent['name'])}: {words}", style="red"))
    for words in namesakes(state.agents.values()):
        problems.append(Text(f"{printable(words)}: give each a --name of its own", style="yellow"))
    if not state.agents:
        hint = Text("no agent is connected; see agent --help to start one")
        return Group(Text(_headline(state)), Text(), hint)
    return Group(Text(_headline(state)), Text(), table, *problems)


def _models(agent: dict[str, Any]) -> str:
    """Return the agent's models, each with its state if the agent's state is another."""
    words = [
        each["name"] if each["state"] == agent["state"] else f"{each['name']} ({each['state']})"
        for each in agent["models"]
    ]
    return ", ".join(words) or "-"


_STYLES = {"ready": "green", "failed": "red", "idle": "dim", "drained": "dim"}


def _headline(state: FleetState) -> str:
    queue: Any = state.totals.get("queue") or {}
    busy = sum(agent["slots"]["busy"] for agent in state.agents.values())
    total = sum(agent["slots"]["total"] for agent in state.agents.values())
    parts = [
        f"{len(state.agents)} agents" if len(state.agents) != 1 else "1 agent",
        f"{busy} of {total} slots busy",
        f"{queue.get('depth', 0)} waiting",
    ]
    if state.rate is not None:
        parts.append(f"{rate(state.rate)} tok/s")
    if state.totals.get("is_draining"):
        parts.append("the balancer is shutting down")
    return " · ".join(parts)
