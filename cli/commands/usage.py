"""`arriero usage`: requests and tokens of callers and models, by day."""

import argparse
import csv
import sys
from collections.abc import Sequence
from typing import Any

from ...shared.printable import printable
from ..arguments import Target, make_parser, run
from ..output import console, print_json

COLUMNS = ("day", "caller", "model")
COUNTS = {
    "requests": "requests",
    "errors": "errors",
    "prompt_tokens": "prompt",
    "cached_tokens": "cached",
    "completion_tokens": "answers",
}
"""The fields of an answer and their column titles; all but the first two count tokens."""


def main(argv: Sequence[str] | None = None) -> int:
    """Show requests, errors and tokens by caller, model or day (UTC)."""
    return run(build_parser(), argv, _usage)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("usage", main.__doc__ or "")
    parser.add_argument(
        "--since",
        metavar="DAY",
        default="30d",
        help="the first day, as 2026-01-31, or 7d for seven days (30d)",
    )
    parser.add_argument("--until", metavar="DAY", help="the last day (today)")
    parser.add_argument(
        "--by",
        default="caller",
        help="caller, model or day, or several separated by commas (caller)",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV, for spreadsheets")
    return parser


async def _usage(arguments: argparse.Namespace, target: Target) -> None:

    choice = {"since": arguments.since, "by": arguments.by}
    if arguments.until:
        choice["until"] = arguments.until
    async with target.client() as client:
        usage = await client.management.usage(**choice)
    if arguments.json:
        print_json(usage)
    elif arguments.csv:
        _print_csv(usage)
    else:
        console().print(_table(usage))


def _print_csv(usage: dict[str, Any]) -> None:
    columns = [name for name in COLUMNS if name in usage["by"]]
    writer = csv.DictWriter(sys.stdout, [*columns, *COUNTS], lineterminator="\n")
    writer.writeheader()
    for row in usage["usage"]:
        names = {name: printable(row[name] or "") for name in columns}
        writer.writerow({**row, **names})


def _table(usage: dict[str, Any]) -> Any:
    from rich.table import Table

    if not usage["usage"]:
        return f"nothing was used from {usage['since']} to {usage['until']}"
    columns = [name for name in COLUMNS if name in usage["by"]]
    table = Table(*columns, box=None, pad_edge=False)
    for heading in COUNTS.values():
        table.add_column(heading, justify="right")
    for row in usage["usage"]:
        table.add_row(*(row[name] or "-" for name in columns), *_counts(row))
    if len(usage["usage"]) > 1:
        table.add_row("total", *("" for _ in columns[1:]), *_counts(usage["total"]))
    return table


def _counts(row: dict[str, Any]) -> list[str]:
    return [f"{row[name]:,}" for name in COUNTS]
