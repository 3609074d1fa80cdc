"""`arriero restore`: creates a store from a backup, before a balancer is started with it."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from ..arguments import Target, UsageError, make_parser, run_plain
from ..output import console, print_json
from .backup import add_places, places_of


def main(argv: Sequence[str] | None = None) -> int:
    """Create a SQLite store and its files from a backup; neither may exist already.

    With PostgreSQL it restores only the files; pg_restore restores the database.
    """
    return run_plain(build_parser(), argv, _restore)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("restore", main.__doc__ or "")
    parser.add_argument("file", type=Path, help="the file that `arriero backup` wrote")
    add_places(parser)
    return parser


def _restore(arguments: argparse.Namespace, _: Target) -> None:
    from ...balancer.backup import BackupError, restore

    database, place = places_of(arguments)
    try:
        manifest = restore(arguments.file, database, place)
    except BackupError as error:
        raise UsageError(str(error)) from error
    if arguments.json:
        print_json(asdict(manifest))
        return
    at = datetime.fromtimestamp(manifest.created_at).astimezone().isoformat(" ", "seconds")
    console().print(
        f"{database or place}: as it was at {at}, with {manifest.num_files} files",
        soft_wrap=True,
    )
