"""Runs a batch on the balancer: uploads it, follows it, and downloads its results.

A note next to the output records the running batch, so that the same command continues after it
was killed. The note is deleted once the results are downloaded.
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
"""Seconds between two polls of the batch's state."""

ENDED = ("completed", "failed", "expired", "cancelled")
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Note:
    """The running batch: the id of the upload, and of the batch once it is created."""

    url: str
    file: str
    batch: str | None = None


def note_path(output: Path) -> Path:
    """Return the path of the note of this output."""
    return output.with_name(f"{output.name}.batch")


def read_note(output: Path) -> Note | None:
    """Return the note, if there is one. Raises `UsageError` if the file is not a note."""
    path = note_path(output)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return Note(**json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path} is not a note of a batch; move it away") from None


def write_note(output: Path, note: Note) -> None:
    """Replace the note atomically."""
    _replace(note_path(output), json.dumps(asdict(note)).encode())


def endpoint_of(source: Path) -> str:
    """Return the `url` of the first line. Raises `UsageError` if it is not an OpenAI batch line."""
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
            f"{source}: with --server-side each line must be a line of an OpenAI batch file, with "
            "`custom_id`, `url` and `body`; the first is not"
        )
    return url


async def run(
    client: "Client", url: str, source: Path, output: Path, progress: Progress
) -> dict[str, Any]:
    """Run the batch and write its results to `output`; call `progress` until it has ended.

    Returns the ended batch.
    """
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
        raise UsageError(f"{output} is not empty; name another file")
    return note


async def _made(
    client: "Client", source: Path, output: Path, note: Note, endpoint: str
) -> dict[str, Any]:
    """Return the batch of the note; create the batch if a killed command did not."""
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
            f"the balancer no longer has batch {id}; delete {note_path(output)} to begin anew"
        ) from error


async def _fetch(client: "Client", batch: dict[str, Any], output: Path) -> None:
    """Write the answers, then the errors, to one file, which is replaced atomically."""
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
