"""`arriero requests`: lists requests that run, wait or have ended; shows or cancels one."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..arguments import Target, UsageError, make_parser, positive, run
from ..output import console, duration, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from ...client.management import Management

ID_LENGTH = 32
"""Characters of a full id."""

SHORT_ID = 8
"""Characters of an id on a narrow terminal; commands accept such a prefix."""

FOR_COUNTS, FOR_IDS = 100, 132
"""Columns of a terminal that is wide enough for all counts, and for full ids."""

MOST_LISTED = 1000
"""Maximum requests that a balancer lists at once."""


def main(argv: Sequence[str] | None = None) -> int:
    """List requests; show or cancel one."""
    return run(build_parser(), argv, _requests)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("requests", main.__doc__ or "")
    parser.add_argument("action", nargs="?", choices=("list", "show", "cancel"), default="list")
    parser.add_argument(
        "request", nargs="?", help="show, cancel: the request's id, or a prefix of it"
    )
    parser.add_argument("--ended", action="store_true", help="list ended requests")
    parser.add_argument("--model", help="list requests of this model")
    parser.add_argument("--caller", help="list requests of this caller")
    parser.add_argument(
        "--limit", type=positive, default=50, help="maximum number of requests (50)"
    )
    return parser


async def _requests(arguments: argparse.Namespace, target: Target) -> None:

    async with target.client() as client:
        if arguments.action != "list" and arguments.request is None:
            raise UsageError(f"{arguments.action} which request? Give its id")
        if arguments.action == "cancel":
            await client.management.cancel(await _whole(client.management, arguments.request))
            return
        if arguments.action == "show":
            found = await _found(client.management, arguments.request)
            if arguments.json:
                print_json(found)
            else:
                console().print(_shown(found))
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
        elif arguments.ended:
            console().print(_ended(requests))
        else:
            has_agents = any(each["agent"] for each in requests)
            agents = await client.management.agents() if has_agents else []
            console().print(_live(requests, {each["id"]: each["name"] for each in agents}))


async def _whole(management: "Management", id: str) -> str:
    """Return the full id with this prefix; without such an id, the prefix itself."""
    if len(id) >= ID_LENGTH:
        return id
    listed = await management.requests(limit=MOST_LISTED)
    found = [each["id"] for each in listed if each["id"].startswith(id)]
    if id in found or not found:
        return id
    if len(found) > 1:
        raise UsageError(f"{len(found)} requests begin with {id}: give more of the id")
    return str(found[0])


async def _found(management: "Management", id: str) -> dict[str, Any]:
    """Return the request whose id has this prefix, even if it has ended. Raises `UsageError`."""
    listed = await management.requests(limit=MOST_LISTED)
    found = [each for each in listed if each["id"].startswith(id)]
    names = {each["id"]: each["name"] for each in await management.agents()} if found else {}
    found = [each | {"agent": names.get(each["agent"], each["agent"])} for each in found]
    if not found:
        ended = await management.requests(state="ended", limit=MOST_LISTED)
        found = [each for each in ended if each["id"].startswith(id)]
    if len(found) > 1 and id not in [each["id"] for each in found]:
        raise UsageError(f"{len(found)} requests begin with {id}: give more of the id")
    if not found:
        raise UsageError(f"no running, waiting or recent request begins with {id}")
    return next((each for each in found if each["id"] == id), found[0])


def _shown(request: dict[str, Any]) -> Any:
    """Return a table of a request's known values, one a line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in request.items():
        if value is None or value == "":
            continue
        if name in ("ended_at", "expected_start"):
            value = datetime.fromtimestamp(value).astimezone().isoformat(" ", "seconds")
        elif name.endswith("_ms"):
            name, value = name.removesuffix("_ms"), f"{value / 1000:.3f} s"
        elif name.endswith("_seconds"):
            name, value = name.removesuffix("_seconds"), duration(value)
        elif isinstance(value, float):
            value = f"{value:.1f}"
        table.add_row(_NAMES.get(name, name.replace("_", " ")), str(value))
    return table


_NAMES = {"code": "how it ended", "queue": "waited", "total": "took", "for": "waits for"}


def _live(requests: list[dict[str, Any]], agents: Mapping[str, str]) -> Any:
    """Return a table of the running and waiting requests, with the agents' names.

    Ids and names are shortened if the terminal is too narrow.
    """
    columns = console().width
    table = _lines("state", numbers=("tokens", "moves", "waited", "age"))
    for each in requests:
        table.add_row(
            _id(each, columns),
            _state(each),
            each["caller"],
            each["model"] or "any",
            agents.get(each["agent"], each["agent"]) or "-",
            str(each["num_tokens"]),
            str(each["moves"]),
            duration(each["waited_seconds"]),
            duration(each["age_seconds"]),
        )
    return table if requests else "no requests run or wait"


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
    """Return the name of the request's balancer; empty if there is only one balancer."""
    return request.get("balancer") or ""  # balancers before it have none


def _ended(requests: list[dict[str, Any]]) -> Any:
    """Return a table of the ended requests."""
    has_several = any(map(_at, requests))
    columns = console().width
    has_all = columns >= FOR_COUNTS
    counts = {name: field for name, field in _COUNTS.items() if has_all or name in _FEW_COUNTS}
    at = ["at"] if has_several else []
    table = _lines("when", "ended", *at, numbers=(*counts, "took"))
    for each in requests:
        table.add_row(
            _id(each, columns),
            _when(each["ended_at"]),
            each["code"],
            *([_at(each) or "-"] if has_several else []),
            each["caller"],
            each["model"] or "-",
            each["agent"] or "-",
            *(str(each[field]) for field in counts.values()),
            duration(each["total_ms"] / 1000),
        )
    return table if requests else "no requests have ended yet"


_COUNTS = {
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "tokens": "completion_tokens",
    "moves": "moves",
}
_FEW_COUNTS = ("prompt", "tokens")


def _lines(*words: str, numbers: Iterable[str]) -> "Table":
    """Return a table for requests; names are cut if there is no room for them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for name in ("id", *words):
        table.add_column(name, no_wrap=True)
    for name in ("caller", "model", "agent"):
        table.add_column(name, overflow="ellipsis")
    for name in numbers:
        table.add_column(name, no_wrap=True, justify="right")
    return table


def _id(request: dict[str, Any], columns: int) -> str:
    return str(request["id"]) if columns >= FOR_IDS else str(request["id"])[:SHORT_ID]


def _when(ended_at: float) -> str:
    """Return the time of day; before today, the date and the time."""
    at, now = datetime.fromtimestamp(ended_at).astimezone(), datetime.now().astimezone()
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%m-%d %H:%M")
