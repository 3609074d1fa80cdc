"""`arriero models`: what is desired and what is served."""

import argparse
from collections.abc import Sequence

from ..arguments import Target, make_parser
from ..boundary import run
from ..output import issues, print_json


def main(argv: Sequence[str] | None = None) -> int:
    """Lists models with their status and progress."""
    return run(build_parser(), argv, _models)


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    return make_parser("models", main.__doc__ or "")


async def _models(arguments: argparse.Namespace, target: Target) -> None:
    from rich.console import Console
    from rich.table import Table

    from ...client import Client

    async with Client(
        target.url, management=target.management, key=target.key, tls_ca=target.tls_ca
    ) as client:
        models = await client.management.models()
    if arguments.json:
        print_json(models)
        return
    table = Table("model", "status", "progress", "agents", "issues", box=None, pad_edge=False)
    for model in models:
        progress = model.get("progress")
        table.add_row(
            model["name"],
            model["status"],
            "" if progress is None else f"{progress:.0%}",
            str(len(model.get("agents") or ())),
            issues(model),
        )
    Console().print(table if models else "no models yet: see arriero apply --help")
