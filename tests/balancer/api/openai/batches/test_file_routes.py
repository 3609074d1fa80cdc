"""`/v1/files` over HTTP."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, FormData
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.jobs import files as files_module
from arriero.balancer.store.port import StoreAway
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.api.openai.batches.conftest import Served
from tests.balancer.jobs.builders import created, request_line

DATA = b"0123456789" * 1000


def form(data: bytes = DATA, **fields: str) -> FormData:
    made = FormData()
    made.add_field("purpose", "batch")
    for name, value in fields.items():
        made.add_field(name, value)
    made.add_field("file", data, filename="in.jsonl")
    return made


async def upload(served: Served, data: bytes = DATA) -> dict[str, Any]:
    async with served.client.post("/v1/files", data=form(data)) as answer:
        assert answer.status == 200, await answer.text()
        return dict(await answer.json())


async def test_a_file_comes_is_read_and_goes(served: Served) -> None:
    file = await upload(served)
    assert (file["object"], file["bytes"], file["filename"]) == ("file", len(DATA), "in.jsonl")
    path = f"/v1/files/{file['id']}"
    async with served.client.get(path) as answer:
        assert await answer.json() == file
    async with served.client.get(f"{path}/content") as answer:
        assert answer.status == 200
        assert answer.content_length == len(DATA)
        assert await answer.read() == DATA
    async with served.client.head(f"{path}/content") as answer:
        assert (answer.status, answer.content_length) == (200, len(DATA))
    async with served.client.delete(path) as answer:
        assert await answer.json() == {"id": file["id"], "object": "file", "deleted": True}
    async with served.client.get(path) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("range", "start", "stop"),
    [("bytes=0-3", 0, 4), ("bytes=9990-", 9990, 10_000), ("bytes=-5", 9995, 10_000)],
)
async def test_a_part_of_a_file(served: Served, range: str, start: int, stop: int) -> None:
    file = await upload(served)
    headers = {"Range": range}
    async with served.client.get(f"/v1/files/{file['id']}/content", headers=headers) as answer:
        assert answer.status == 206
        assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/10000"
        assert await answer.read() == DATA[start:stop]


@pytest.mark.parametrize("range", ["bytes=10000-", "bytes=5-2", "lines=1-2"])
async def test_a_part_that_is_not_there(served: Served, range: str) -> None:
    file = await upload(served)
    headers = {"Range": range}
    async with served.client.get(f"/v1/files/{file['id']}/content", headers=headers) as answer:
        assert answer.status == 416
        assert answer.headers["Content-Range"] == "bytes */10000"


async def test_an_empty_file_is_one(served: Served) -> None:
    file = await upload(served, b"")
    async with served.client.get(f"/v1/files/{file['id']}/content") as answer:
        assert (answer.status, await answer.read()) == (200, b"")


def bytes_of(file: dict[str, Any], folder: Path) -> Path:
    [found] = folder.rglob(file["id"])
    return found


async def test_content_that_is_away_is_told(served: Served, tmp_path: Path) -> None:
    file = await upload(served)
    bytes_of(file, tmp_path).unlink()
    async with served.client.get(f"/v1/files/{file['id']}/content") as answer:
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "store_unavailable"
    async with served.client.head(f"/v1/files/{file['id']}/content") as answer:
        assert (answer.status, answer.content_length) == (200, len(DATA))


async def test_content_that_goes_on_the_way_is_cut_off(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(files_module, "PIECE", 4096)
    file = await upload(served)
    bytes_of(file, tmp_path).write_bytes(DATA[:5000])
    async with served.client.get(f"/v1/files/{file['id']}/content") as answer:
        assert answer.status == 200
        with pytest.raises(ClientPayloadError):
            await answer.read()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert (
        "WARNING",
        f"a file was cut off while it was sent: the file {file['id']} ended early",
    ) in told
    assert not [message for level, message in told if level == "ERROR"]


async def test_pages(served: Served) -> None:
    ids = [(await upload(served, b"%d" % number))["id"] for number in range(5)]
    async with served.client.get("/v1/files?limit=2&order=asc") as answer:
        page = await answer.json()
    assert [each["id"] for each in page["data"]] == ids[:2]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[0], ids[1], True)
    async with served.client.get(f"/v1/files?order=asc&after={ids[1]}") as answer:
        page = await answer.json()
    assert [each["id"] for each in page["data"]] == ids[2:]
    assert not page["has_more"]
    async with served.client.get("/v1/files?purpose=batch_output") as answer:
        assert (await answer.json())["data"] == []


@pytest.mark.parametrize("query", ["limit=0", "order=up", "after=file-none", "nosuch=1"])
async def test_what_is_wrong_with_a_page_is_named(served: Served, query: str) -> None:
    async with served.client.get(f"/v1/files?{query}") as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == query.partition("=")[0]


async def test_a_file_that_a_batch_reads_stays(served: Served) -> None:
    served.house.fleet.slots = {}
    batch = await created(served.jobs, request_line(1))
    async with served.client.delete(f"/v1/files/{batch.input_file}") as answer:
        assert answer.status == 409
        assert batch.id in (await answer.json())["error"]["message"]


async def test_a_store_that_is_away_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_id: str) -> None:
        raise StoreAway("connection refused")

    monkeypatch.setattr(served.house.store, "file", away)
    async with served.client.get("/v1/files/file-1") as answer:
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "store_unavailable"


async def test_a_balancer_without_a_place_says_so() -> None:
    async with TestClient(TestServer(inference_app(FakeFleetRuntime()))) as client:
        for path in ("/v1/files", "/v1/batches", "/v1/files/x/content"):
            async with client.get(path) as answer:
                assert answer.status == 501
                assert "--files" in (await answer.json())["error"]["message"]
