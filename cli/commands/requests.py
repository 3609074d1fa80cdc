"""`arriero requests`: what runs, waits and has ended; cancel one."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..arguments import Target, UsageError, make_parser, positive
from ..boundary import run
from ..output import console, duration, print_json

if TYPE_CHECKING:
    from ...client.management import Management

ID_LENGTH = 32
"""Characters of a whole id."""

MOST_LISTED = 1000
"""Requests that a balancer lists at once."""


def main(argv: Sequence[str] | None = None) -> int:
    """Lists requests; cancels one."""
    return run(build_parser(), argv, _requests)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = make_parser("requests", main.__doc__ or "")
    parser.add_argument("action", nargs="?", choices=("list", "cancel"), default="list")
    parser.add_argument("request", nargs="?", help="cancel: the request's id, or how it begins")
    parser.add_argument("--ended", action="store_true", help="list those that have ended")
    parser.add_argument("--model", help="list those of this model")
    parser.add_argument("--caller", help="list those of this caller")
    parser.add_argument("--limit", type=positive, default=50, help="list at most so many (50)")
    return parser


async def _requests(arguments: argparse.Namespace, target: Target) -> None:

    from ...client import Client

    async with Client(
        target.url, management=target.management, key=target.key, tls_ca=target.tls_ca
    ) as client:
        if arguments.action == "cancel":
            if arguments.request is None:
                raise UsageError("cancel which request? Give its id")
            await client.management.cancel(await _whole(client.management, arguments.request))
            return
        choice: dict[str, str | int] = {"limit": arguments.limit}
        if arguments.ended:
            choice["state"] = "ended"
        if arguments.model:
            choice["model"] = arguments.model
        if arguments.caller:
            choice["caller"] = arguments.caller
        requests = await client.management.requests(**choice)
        if arguments.json:
            print_json(requests)
        else:
            console().print(_ended(requests) if arguments.ended else _live(requests))


async def _whole(management: "Management", id: str) -> str:
    """The id that begins so, if one does."""
    if len(id) >= ID_LENGTH:
        return id
    listed = await management.requests(limit=MOST_LISTED)
    found = [each["id"] for each in listed if each["id"].startswith(id)]
    if id in found or not found:
        return id
    if len(found) > 1:
        raise UsageError(f"{len(found)} requests begin with {id}: give more of the id")
    return str(found[0])


def _live(requests: list[dict[str, Any]]) -> Any:
    """A line for each; ids and names are shortened where the terminal is too narrow for them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("id", overflow="crop")
    table.add_column("state", no_wrap=True)
    for name in ("caller", "model"):
        table.add_column(name, overflow="ellipsis")
    for name in ("tokens", "moves", "waited", "age"):
        table.add_column(name, no_wrap=True)
    for each in requests:
        table.add_row(
            each["id"],
            _state(each),
            each["caller"],
            each["model"] or "any",
            str(each["num_tokens"]),
            str(each["moves"]),
            duration(each["waited_seconds"]),
            duration(each["age_seconds"]),
        )
    return table if requests else "nothing runs or waits"


def _state(request: dict[str, Any]) -> str:
    place = request["position"]
    words = [str(request["state"])]
    if place is not None:
        words.append(f"number {place}")
    if at := _at(request):
        words.append(f"at {at}")
    kind = str(request.get("priority_class", "default"))  # balancers before it have none
    if kind != "default":
        words.append(kind)
    return ", ".join(words)


def _at(request: dict[str, Any]) -> str:
    """Which of several balancers has it, or had it; empty where there is one alone."""
    return request.get("balancer") or ""  # balancers before it have none


def _ended(requests: list[dict[str, Any]]) -> Any:
    """A line for each, as in `_live`."""
    from rich.table import Table

    has_several = any(map(_at, requests))
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("id", overflow="crop")
    table.add_column("ended", no_wrap=True)
    if has_several:
        table.add_column("at", no_wrap=True)
    for name in ("caller", "model", "agent"):
        table.add_column(name, overflow="ellipsis")
    for name in ("prompt", "cached", "tokens", "moves", "took"):
        table.add_column(name, no_wrap=True)
    for each in requests:
        table.add_row(
            each["id"],
            each["code"],
            *([_at(each) or "-"] if has_several else []),
            each["caller"],
            each["model"] or "-",
            each["agent"] or "-",
            *(str(each[name]) for name in _COUNTS),
            duration(each["total_ms"] / 1000),
        )
    return table if requests else "nothing has ended yet"


_COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "moves")
