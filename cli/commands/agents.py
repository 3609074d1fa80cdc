"""`arriero agents`: list agents and lost hosts; drain, resume, reload, forget, log."""

import argparse
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...shared.printable import printable
from ..arguments import Target, UsageError, make_parser, run
from ..output import console, duration, in_gib, print_json

if TYPE_CHECKING:
    from ...client.management import Management
    from ..screen import Screen

ACTIONS = ("list", "drain", "resume", "reload", "forget", "log")


def main(argv: Sequence[str] | None = None) -> int:
    """List agents; drain, resume or reload one; show its log; forget a host that is gone."""
    return run(build_parser(), argv, _agents)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("agents", main.__doc__ or "")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    parser.add_argument("agent", nargs="?", help="name or id")
    parser.add_argument(
        "--deadline", metavar="DURATION", help="drain: time for running requests to end (30s)"
    )
    parser.add_argument("--follow", action="store_true", help="log: keep printing new lines")
    return parser


async def _agents(arguments: argparse.Namespace, target: Target) -> None:

    async with target.client() as client:
        fleet = client.management
        agents = await fleet.agents()
        if arguments.action == "list":
            await _list(fleet, agents, as_json=arguments.json)
            return
        if arguments.agent is None:
            raise UsageError(f"{arguments.action} which agent? Give its name or id")
        if arguments.action == "forget":
            await fleet.forget_host(arguments.agent)
            console().print(f"{arguments.agent} is forgotten")
            return
        id = agent_named(agents, arguments.agent)["id"]
        if arguments.action == "log":
            await _log(fleet, id, arguments)
        else:
            await _steer(fleet, id, arguments)


async def _list(fleet: "Management", agents: list[dict[str, Any]], *, as_json: bool) -> None:
    from ..fleet_state import FleetState
    from .status import view

    if as_json:
        print_json(agents)
        return
    state = FleetState()
    state.apply("snapshot", {"agents": agents, "requests": []})
    screen = console()
    screen.print(view(state))
    _print_memory(screen, agents)
    _print_gone(screen, await fleet.hosts())


async def _steer(fleet: "Management", id: str, arguments: argparse.Namespace) -> None:
    if arguments.action == "drain":
        await fleet.drain(id, deadline=arguments.deadline)
    elif arguments.action == "resume":
        await fleet.resume(id)
    else:
        await fleet.reload(id)
    changed = await fleet.agent(id)
    if arguments.json:
        print_json(changed)
    elif arguments.action == "reload":
        console().print(f"{changed['name']} finishes its requests, then reloads its model")
    else:
        console().print(f"{changed['name']}: {changed['state']}")


async def _log(fleet: "Management", id: str, arguments: argparse.Namespace) -> None:
    screen = console()
    if not arguments.follow:
        _print_lines(screen, await fleet.agent_log(id), as_json=arguments.json)
        return
    async with aclosing(fleet.agent_log_events(id)) as events:
        async for event in events:
            _print_lines(screen, event.data["lines"], as_json=arguments.json)


def _print_lines(screen: "Screen", lines: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    """Print the lines of an agent's log, the newest last; with `as_json`, an object a line."""
    for line in lines:
        if as_json:
            print_json(line)
            continue
        at = datetime.fromtimestamp(line["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        text = f"{at}  {line['level']:7}  {line['text']}"
        screen.print(text, style=_STYLES.get(line["level"]), soft_wrap=True)


_STYLES = {"warning": "yellow", "error": "red"}


def _print_memory(screen: "Screen", agents: Iterable[dict[str, Any]]) -> None:
    """Print a line for each device on which models take memory."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("agent", "device"):
        table.add_column(name)
    table.add_column("memory", justify="right")
    table.add_column("free", justify="right")
    table.add_column("models")
    for agent in sorted(agents, key=lambda each: str(each["name"])):
        for device in agent.get("devices", ()):
            if held := device.get("models"):
                memory = device["memory"]
                words = ", ".join(f"{model['name']} {in_gib(model['bytes'])}" for model in held)
                free = "-" if memory["free"] is None else in_gib(memory["free"])
                table.add_row(
                    agent["name"],
                    device["name"],
                    in_gib(memory["total"]),
                    free,
                    words,
                )
    if table.row_count:
        screen.print()
        screen.print(table)


def _print_gone(screen: "Screen", hosts: Iterable[dict[str, Any]]) -> None:
    """Print a line for each host that was connected earlier and is not connected now."""
    from rich.table import Table
    from rich.text import Text

    gone = [host for host in hosts if host["state"] != "here"]
    if not gone:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("not here", "why", "last seen", "labels"):
        table.add_column(name)
    for host in gone:
        labels = ", ".join(f"{key}={value}" for key, value in host["labels"].items())
        ago = duration(max(0.0, time.time() - host["last_seen"]))
        style = "red" if host["state"] == "lost" else "yellow"
        state = Text(printable(host["state"]), style=style)
        table.add_row(host["name"], state, f"{ago} ago", labels)
    screen.print()
    screen.print(table)


def agent_named(agents: Iterable[dict[str, Any]], word: str) -> dict[str, Any]:
    """Return the agent with this id or name. Raises `UsageError` if there is none, or several."""
    agents = list(agents)
    found = [agent for agent in agents if word in (agent["id"], agent["name"])]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(agent["id"] for agent in found)
        raise UsageError(f"several agents are called {word!r}; give the id of one: {ids}")
    names = ", ".join(sorted({agent["name"] for agent in agents})) or "none"
    raise UsageError(f"no agent is called {word!r}; connected: {names}")
