"""`arriero diary`: the events of the fleet, past and new."""

import argparse
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..arguments import Target, make_parser, positive, run
from ..output import console, print_json

if TYPE_CHECKING:
    from ..screen import Screen


def main(argv: Sequence[str] | None = None) -> int:
    """Print the events of hosts, models, issues, keys and changes, with who made them."""
    return run(build_parser(), argv, _diary)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("diary", main.__doc__ or "")
    parser.add_argument(
        "--since",
        metavar="DURATION",
        help="print only the events of the last DURATION, such as 12h or 7d",
    )
    parser.add_argument("--limit", type=positive, default=50, help="maximum number of events (50)")
    parser.add_argument("--follow", action="store_true", help="keep printing new events")
    return parser


async def _diary(arguments: argparse.Namespace, target: Target) -> None:

    choice: dict[str, str | int] = {"limit": arguments.limit}
    if arguments.since:
        choice["since"] = arguments.since
    screen = console()
    async with target.client() as client:
        if arguments.follow:
            async with aclosing(client.management.diary_events(**choice)) as events:
                async for event in events:
                    if event.name == "entry":
                        _print(screen, event.data, as_json=arguments.json)
            return
        entries = await client.management.diary(**choice)
    if arguments.json:
        print_json(entries)
        return
    for entry in reversed(entries):
        _print(screen, entry, as_json=False)
    if not entries:
        screen.print("nothing has happened yet")


def _print(screen: "Screen", entry: dict[str, Any], *, as_json: bool) -> None:
    """Print an entry as one line."""
    if as_json:
        print_json(entry)
        return
    at = datetime.fromtimestamp(entry["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    by = f", by {entry['by']}" if entry.get("by") else ""
    kind = str(entry["kind"]).replace("_", " ")
    line = f"{at}  {kind}: {entry['subject']}: {entry['message']}{by}"
    screen.print(line, style=_STYLES.get(entry["kind"]), soft_wrap=True)


_STYLES = {"host_went": "red", "model_failed": "red", "issue_began": "yellow"}
