"""`arriero agents`: list those that are here and hosts that went; drain, resume, reload, forget."""

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...shared.printable import printable
from ..arguments import Target, UsageError, make_parser
from ..boundary import run
from ..output import console, duration, in_gib, print_json

if TYPE_CHECKING:
    from ..screen import Screen

ACTIONS = ("list", "drain", "resume", "reload", "forget")


def main(argv: Sequence[str] | None = None) -> int:
    """Lists agents; drains, resumes or reloads one; forgets a host that is gone."""
    return run(build_parser(), argv, _agents)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = make_parser("agents", main.__doc__ or "")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    parser.add_argument("agent", nargs="?", help="name or id")
    parser.add_argument(
        "--deadline", metavar="DURATION", help="drain: how long running requests may go on (30s)"
    )
    return parser


async def _agents(arguments: argparse.Namespace, target: Target) -> None:

    from ...client import Client
    from ..fleet_state import FleetState
    from .status import view

    async with Client(
        target.url, management=target.management, key=target.key, tls_ca=target.tls_ca
    ) as client:
        fleet = client.management
        agents = await fleet.agents()
        if arguments.action == "list":
            if arguments.json:
                print_json(agents)
                return
            state = FleetState()
            state.apply("snapshot", {"agents": agents, "requests": []})
            screen = console()
            screen.print(view(state))
            _print_memory(screen, agents)
            _print_gone(screen, await fleet.hosts())
            return
        if arguments.agent is None:
            raise UsageError(f"{arguments.action} which agent? Give its name or id")
        if arguments.action == "forget":
            await fleet.forget_host(arguments.agent)
            console().print(f"{arguments.agent} is forgotten")
            return
        agent = agent_named(agents, arguments.agent)
        if arguments.action == "drain":
            await fleet.drain(agent["id"], deadline=arguments.deadline)
        elif arguments.action == "resume":
            await fleet.resume(agent["id"])
        else:
            await fleet.reload(agent["id"])
        changed = await fleet.agent(agent["id"])
        if arguments.json:
            print_json(changed)
        elif arguments.action == "reload":
            line = f"{changed['name']} finishes what runs, then loads its model anew"
            console().print(line)
        else:
            console().print(f"{changed['name']}: {changed['state']}")


def _print_memory(screen: "Screen", agents: Iterable[dict[str, Any]]) -> None:
    """What lies where: a line for each device that models take memory of."""
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
    """A line for each host that was here and is not."""
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
    """The agent with this id or name. Raises `UsageError` where there is none, or several."""
    agents = list(agents)
    found = [agent for agent in agents if word in (agent["id"], agent["name"])]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(agent["id"] for agent in found)
        raise UsageError(f"several agents are called {word!r}; give the id of one: {ids}")
    names = ", ".join(sorted({agent["name"] for agent in agents})) or "none"
    raise UsageError(f"no agent is called {word!r}; connected: {names}")
