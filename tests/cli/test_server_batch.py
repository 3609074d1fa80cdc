"""A batch that the balancer runs, followed by a command that may be killed anywhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.cli import server_batch
from arriero.cli.arguments import UsageError
from arriero.cli.server_batch import Note, endpoint_of, note_path, read_note, run, write_note
from arriero.client import Client, RequestFailed
from arriero.client.retries import NEVER
from tests.client.fakes import FakeServer, says, serving, writes

LINE = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
MISSING = {"error": {"code": "not_found", "message": "gone", "retryable": False}}
AWAY = {"error": {"code": "store_unavailable", "message": "away", "retryable": True}}


def batch(status: str, **more: Any) -> dict[str, Any]:
    counts = {"total": 2, "completed": 1, "failed": 1}
    files = {"input_file_id": "f", "output_file_id": None, "error_file_id": None}
    return {"id": "b", "status": status, "request_counts": counts, **files, **more}


DONE = batch("completed", output_file_id="o", error_file_id="e")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n" + json.dumps(LINE) + "\n")
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def text_of(path: Path) -> str:
    return path.read_text()


def write(path: Path, text: str) -> None:
    path.write_text(text)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def follow(server: FakeServer, source: Path, output: Path) -> list[str]:
    """The statuses that were told."""
    statuses: list[str] = []
    async with Client(server.url, retries=NEVER) as client:
        await run(client, "u", source, output, lambda seen: statuses.append(seen["status"]))
    return statuses


async def test_it_is_uploaded_followed_and_fetched(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_batch, "POLL_INTERVAL", 0.0)
    async with serving() as server:
        server.will(says({"id": "f"}), says(batch("validating")), says(DONE))
        server.will(writes(b"answer\n"), writes(b"error\n"))
        assert await follow(server, source, output) == ["validating", "completed"]
    assert text_of(output) == "answer\nerror\n"
    assert json.loads(server.seen[1][2])["endpoint"] == "/v1/completions"
    assert names_in(output.parent) == ["in.jsonl", "out.jsonl"]


async def test_it_goes_on_wherever_it_was_killed(source: Path, output: Path) -> None:
    async with serving() as server:
        server.will(says({"id": "f"}), says(AWAY, status=503))  # between upload and batch
        with pytest.raises(RequestFailed):
            await follow(server, source, output)
        assert read_note(output) == Note("u", "f")
        server.will(says({"data": []}), says(DONE), says(AWAY, status=503))  # before the results
        with pytest.raises(RequestFailed):
            await follow(server, source, output)
        assert read_note(output) == Note("u", "f", "b")
        assert names_in(output.parent) == ["in.jsonl", "out.jsonl.batch", "out.jsonl.part"]
        server.will(says(DONE), writes(b"answer\n"), writes(b"error\n"))
        assert await follow(server, source, output) == ["completed"]
    assert text_of(output) == "answer\nerror\n"
    assert [path for _, path, _ in server.seen].count("/v1/files") == 1


async def test_a_batch_that_was_made_is_not_made_again(source: Path, output: Path) -> None:
    write_note(output, Note("u", "f"))
    async with serving() as server:
        server.will(says({"data": [DONE]}), writes(b"answer\n"), writes(b""))
        await follow(server, source, output)
        assert [method for method, _, _ in server.seen] == ["GET"] * 3


async def test_a_batch_that_is_gone_says_what_to_do(source: Path, output: Path) -> None:
    write_note(output, Note("u", "f", "b"))
    async with serving() as server:
        server.will(says(MISSING, status=404))
        with pytest.raises(UsageError, match=r"delete .*out\.jsonl\.batch"):
            await follow(server, source, output)


async def test_nothing_of_others_is_overwritten(source: Path, output: Path) -> None:
    async with serving() as server:
        write(output, "my notes")
        with pytest.raises(UsageError, match="name another"):
            await follow(server, source, output)
        write_note(output, Note("elsewhere", "f"))
        with pytest.raises(UsageError, match="elsewhere"):
            await follow(server, source, output)
        write(note_path(output), "{}")
        with pytest.raises(UsageError, match="not a note"):
            await follow(server, source, output)
    assert text_of(output) == "my notes"
    assert server.seen == []


@pytest.mark.parametrize("first", ["a question", '"text"', '{"prompt": "x"}', ""])
def test_lines_of_other_kinds(tmp_path: Path, first: str) -> None:
    (tmp_path / "in").write_text(first)
    with pytest.raises(UsageError, match="custom_id"):
        endpoint_of(tmp_path / "in")
