"""A batch that the balancer runs: uploaded, followed, and its results fetched.

What is under way is kept in a note beside the output, so that the same command goes on after it was
killed, wherever that was. The note goes when the results are there.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .arguments import UsageError

if TYPE_CHECKING:
    from ..client import Client

POLL_INTERVAL = 1.0
"""Seconds between two requests for the state of the batch."""

ENDED = ("completed", "failed", "expired", "cancelled")
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Note:
    """What is under way: the upload, and the batch once it is made."""

    url: str
    file: str
    batch: str | None = None


def note_path(output: Path) -> Path:
    """Where the note of this output lies."""
    return output.with_name(f"{output.name}.batch")


def read_note(output: Path) -> Note | None:
    """The note, if there is one. Raises `UsageError` where it is something else."""
    path = note_path(output)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return Note(**json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path} is no note of a batch; move it away") from None


def write_note(output: Path, note: Note) -> None:
    """Whole or not at all, also when killed."""
    _replace(note_path(output), json.dumps(asdict(note)).encode())


def endpoint_of(source: Path) -> str:
    """The `url` of the first line. Raises `UsageError` where that is no line of OpenAI's."""
    try:
        with source.open(encoding="utf-8") as lines:
            first = next((line for line in lines if line.strip()), "")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {source}: {error}") from error
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        value = None
    url = value.get("url") if isinstance(value, dict) else None
    if not isinstance(url, str):
        raise UsageError(
            f"{source}: with --server-side each line must be one of OpenAI's batch files, with "
            "`custom_id`, `url` and `body`; the first is not"
        )
    return url


async def run(
    client: "Client", url: str, source: Path, output: Path, progress: Progress
) -> dict[str, Any]:
    """The batch when it has ended and its results are in `output`; before, `progress` is called."""
    note = _note_for(url, output)
    if note is None:
        endpoint = endpoint_of(source)
        note = Note(url, (await client.jobs.upload(source))["id"])
        write_note(output, note)
    else:
        endpoint = ""
    batch = await _made(client, source, output, note, endpoint)
    while batch["status"] not in ENDED:
        progress(batch)
        await asyncio.sleep(POLL_INTERVAL)
        batch = await client.jobs.get(batch["id"])
    progress(batch)
    await _fetch(client, batch, output)
    await asyncio.to_thread(note_path(output).unlink)
    return batch


def _note_for(url: str, output: Path) -> Note | None:
    note = read_note(output)
    if note is not None and note.url != url:
        raise UsageError(f"the batch of {note_path(output)} runs at {note.url}; give that as --url")
    if note is None and output.exists() and output.stat().st_size:
        raise UsageError(f"{output} holds something already; name another")
    return note


async def _made(
    client: "Client", source: Path, output: Path, note: Note, endpoint: str
) -> dict[str, Any]:
    """The batch of the note; it is made if a killed command did not come that far."""
    if note.batch is not None:
        return await _known(client, note.batch, output)
    batch = None if endpoint else await client.jobs.of_file(note.file)
    if batch is None:
        batch = await client.jobs.create(note.file, endpoint or endpoint_of(source))
    write_note(output, replace(note, batch=batch["id"]))
    return batch


async def _known(client: "Client", id: str, output: Path) -> dict[str, Any]:
    from ..client import RequestFailed

    try:
        return await client.jobs.get(id)
    except RequestFailed as error:
        if error.code != "not_found":
            raise
        raise UsageError(
            f"the balancer has no batch {id} any more; delete {note_path(output)} to begin anew"
        ) from error


async def _fetch(client: "Client", batch: dict[str, Any], output: Path) -> None:
    """Answers, then errors, into one file, which is there whole or not at all."""
    unfinished = output.with_name(f"{output.name}.part")
    with unfinished.open("wb") as target:
        for name in ("output_file_id", "error_file_id"):
            if batch[name] is not None:
                await client.jobs.download(batch[name], target)
        _sync(target)
    unfinished.replace(output)


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as target:
        target.write(content)
        _sync(target)
    unfinished.replace(path)


def _sync(target: IO[bytes]) -> None:
    target.flush()
    os.fsync(target.fileno())
