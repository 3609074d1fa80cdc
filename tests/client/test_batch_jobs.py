"""Files and batches of the balancer, from the client's side."""

from io import BytesIO
from pathlib import Path

import pytest

from arriero.client import Client, RequestFailed
from arriero.client.retries import NEVER
from tests.client.fakes import FakeServer, says, writes

MISSING = {"error": {"code": "not_found", "message": "gone", "retryable": False}}


async def test_a_file_goes_up_and_results_come_down(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"line\n")
    target = BytesIO(b"")
    server.will(says({"id": "file-1"}), says({"id": "b"}), writes(b"one\n", b"two\n"), says({}))
    async with Client(server.url, retries=NEVER) as client:
        assert (await client.jobs.upload(tmp_path / "in.jsonl"))["id"] == "file-1"
        assert await client.jobs.create("file-1", "/v1/completions") == {"id": "b"}
        await client.jobs.download("file-2", target)
        await client.jobs.delete("file/1")
    assert target.getvalue() == b"one\ntwo\n"
    assert b'name="purpose"\r\n\r\nbatch' in server.seen[0][2]
    assert b'filename="in.jsonl"' in server.seen[0][2]
    assert [path for _, path, _ in server.seen[1:]] == [
        "/v1/batches",
        "/v1/files/file-2/content",
        "/v1/files/file%2F1",
    ]


async def test_an_upload_that_is_refused_is_sent_again_as_a_whole(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"line\n")
    full = {"error": {"code": "overloaded", "message": "full", "retryable": True}}
    server.will(says(full, status=503), says({"id": "file-1"}))
    async with Client(server.url) as client:
        await client.jobs.upload(tmp_path / "in")
    assert [b"line\n" in body for _, _, body in server.seen] == [True, True]


async def test_a_batch_is_found_by_its_input(server: FakeServer) -> None:
    found = {"data": [{"id": "b2", "input_file_id": "f2"}, {"id": "b1", "input_file_id": "f1"}]}
    server.will(says(found), says(found), says({"id": "b1"}), says(MISSING, status=404))
    async with Client(server.url, retries=NEVER) as client:
        assert await client.jobs.of_file("f1") == found["data"][1]
        assert await client.jobs.of_file("f3") is None
        assert await client.jobs.cancel("b1") == {"id": "b1"}
        with pytest.raises(RequestFailed, match="gone"):
            await client.jobs.get("b3")
