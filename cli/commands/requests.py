"""`arriero requests`: what runs, waits and has ended; cancel one."""

import argparse
from collections.abc import Sequence
from typing import Any

from ..arguments import Target, UsageError, make_parser, positive
from ..boundary import run
from ..output import duration, print_json


def main(argv: Sequence[str] | None = None) -> int:
    """Lists requests; cancels one."""
    return run(build_parser(), argv, _requests)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = make_parser("requests", main.__doc__ or "")
    parser.add_argument("action", nargs="?", choices=("list", "cancel"), default="list")
    parser.add_argument("request", nargs="?", help="cancel: the request's id")
    parser.add_argument("--ended", action="store_true", help="list those that have ended")
    parser.add_argument("--model", help="list those of this model")
    parser.add_argument("--caller", help="list those of this caller")
    parser.add_argument("--limit", type=positive, default=50, help="list at most so many (50)")
    return parser


async def _requests(arguments: argparse.Namespace, target: Target) -> None:
    from rich.console import Console

    from ...client import Client

    async with Client(
        target.url, management=target.management, key=target.key, tls_ca=target.tls_ca
    ) as client:
        if arguments.action == "cancel":
            if arguments.request is None:
                raise UsageError("cancel which request? Give its id")
            await client.management.cancel(arguments.request)
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
            Console().print(_ended(requests) if arguments.ended else _live(requests))


def _live(requests: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    columns = ("id", "state", "caller", "model", "tokens", "moves", "waited", "age")
    table = Table(*columns, box=None, pad_edge=False)
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
    words += _at(request)
    kind = str(request.get("priority_class", "default"))  # balancers before it have none
    if kind != "default":
        words.append(kind)
    return ", ".join(words)


def _at(request: dict[str, Any]) -> list[str]:
    """Which of several balancers has it, or had it."""
    balancer = request.get("balancer")  # balancers before it have none
    return [f"at {balancer}"] if balancer else []


def _ended(requests: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    columns = ("id", "ended", "caller", "model", "agent", "prompt", "cached", "tokens", "moves")
    table = Table(*columns, "took", box=None, pad_edge=False)
    for each in requests:
        table.add_row(
            each["id"],
            ", ".join([each["code"], *_at(each)]),
            each["caller"],
            each["model"] or "-",
            each["agent"] or "-",
            *(str(each[name]) for name in _COUNTS),
            duration(each["total_ms"] / 1000),
        )
    return table if requests else "nothing has ended yet"


_COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "moves")
