"""`arriero backup`: copies everything that a balancer stores into one file, while it runs."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..arguments import Target, UsageError, make_parser, run_plain
from ..output import console, print_json

if TYPE_CHECKING:
    from ...balancer.jobs.files_place import FilesPlace


def main(argv: Sequence[str] | None = None) -> int:
    """Copy state, keys, usage, history, files and results of a SQLite store into one file.

    With PostgreSQL it copies only the files and results; run pg_dump first for the database.
    """
    return run_plain(build_parser(), argv, _backup)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("backup", main.__doc__ or "")
    parser.add_argument("file", type=Path, help="the backup: a tar file, replaced if it exists")
    add_places(parser)
    return parser


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add `--state` and `--files`."""
    parser.add_argument(
        "--state",
        metavar="URL",
        required=True,
        help="the store, sqlite:///FILE or postgresql://…, as the balancer's --state",
    )
    parser.add_argument(
        "--files",
        metavar="DIR|URL",
        help="a folder or a bucket, as the balancer's --files (beside a SQLite store)",
    )


def places_of(arguments: argparse.Namespace) -> tuple[Path | None, "FilesPlace"]:
    """Return the database, `None` for PostgreSQL, and the place of the files.

    Raises `UsageError`.
    """
    from ...balancer.jobs.files_place import FilesPlace, parse_place
    from ...balancer.store.url import parse_store_url

    try:
        url = parse_store_url(arguments.state)
    except ValueError as error:
        raise UsageError(f"--state: {error}") from error
    try:
        place = parse_place(arguments.files)
    except ValueError as error:
        raise UsageError(f"--files: {error}") from error
    if url.kind == "memory":
        raise UsageError("--state: memory:// stores nothing, so there is nothing to back up")
    if url.kind == "sqlite":
        return Path(url.location), place or FilesPlace(Path(f"{url.location}-files"))
    if place is None:
        raise UsageError(
            "--files: is missing; with PostgreSQL, give the balancer's --files, and first copy the "
            "database with pg_dump"
        )
    return None, place


def _backup(arguments: argparse.Namespace, _: Target) -> None:
    from ...balancer.backup import BackupError, back_up

    database, place = places_of(arguments)
    try:
        manifest = back_up(database, place, arguments.file)
    except BackupError as error:
        raise UsageError(str(error)) from error
    if arguments.json:
        print_json(asdict(manifest))
    else:
        size = arguments.file.stat().st_size / 2**20
        store = "" if database is None else "the store and "
        console().print(
            f"{arguments.file}: {store}{manifest.num_files} files, {size:.1f} MiB",
            soft_wrap=True,
        )
