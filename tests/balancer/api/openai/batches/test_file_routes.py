"""`/v1/files` over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, FormData
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.openai.batches import file_routes
from arriero.balancer.api.openai.batches.file_routes import MAX_FIELD, MAX_PARTS, parse_form
from arriero.balancer.jobs import files as files_module
from arriero.balancer.jobs.files_place import FileLimits
from arriero.balancer.store.port import StoreAway
from arriero.shared.errors import InvalidRequest
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
        f"a download of a file was cut off: the file {file['id']} is shorter than its upload",
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


def form_of(**fields: str | bytes) -> FormData:
    made = FormData(default_to_multipart=True)
    for name, value in fields.items():
        if name == "file":
            made.add_field(name, value, filename="passwd.jsonl")
        else:
            made.add_field(name, value)
    return made


def files_in(served: Served) -> list[Path]:
    folder = served.house.folder / "files"
    return list(folder.iterdir()) if folder.exists() else []


async def test_the_order_of_the_fields_is_free(served: Served) -> None:
    async with served.client.post("/v1/files", data=form_of(file=b"x", purpose="batch")) as answer:
        assert answer.status == 200
        assert (await answer.json())["filename"] == "passwd.jsonl"


async def test_it_may_expire(served: Served) -> None:
    made = FormData()
    made.add_field("purpose", "batch")
    made.add_field("expires_after[anchor]", "created_at")
    made.add_field("expires_after[seconds]", "3600")
    made.add_field("file", b"x", filename="a")
    async with served.client.post("/v1/files", data=made) as answer:
        body = await answer.json()
    assert body["expires_at"] == body["created_at"] + 3600


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "batch"}, "file"),
        ({"file": b"x"}, "purpose"),
        ({"file": b"x", "purpose": "fine-tune"}, "purpose"),
        ({"file": b"x", "purpose": "batch", "nosuch": "1"}, "nosuch"),
        ({"file": b"x", "purpose": "x" * (MAX_FIELD + 1)}, "purpose"),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    served: Served, fields: dict[str, str | bytes], param: str
) -> None:
    async with served.client.post("/v1/files", data=form_of(**fields)) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == param
    assert files_in(served) == []


async def test_parts_are_bounded_and_none_is_there_twice(served: Served) -> None:
    many = FormData()
    for number in range(MAX_PARTS + 1):
        many.add_field(f"f{number}", "x", content_type="text/plain")
    twice = FormData()
    for _ in range(2):
        twice.add_field("file", b"x", filename="a")
    for data, words in ((many, "at most 16 parts"), (twice, "twice")):
        async with served.client.post("/v1/files", data=data) as answer:
            assert answer.status == 400
            assert words in (await answer.json())["error"]["message"]
    assert files_in(served) == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"--c\r\n"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data\r\n\r\nx"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf a file',
        ),
    ],
)
async def test_what_is_no_form(served: Served, kind: str, body: bytes) -> None:
    headers = {"Content-Type": kind}
    async with served.client.post("/v1/files", data=body, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_request_error"
    assert files_in(served) == []


async def test_what_is_too_large(served: Served) -> None:
    served.jobs.files.limits = FileLimits(max_file=1000)
    data = form_of(file=b"x" * 1001, purpose="batch")
    async with served.client.post("/v1/files", data=data) as answer:
        assert answer.status == 413
    assert files_in(served) == []


async def test_what_comes_too_slowly(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_routes, "BODY_SILENCE", 0.01)
    is_answered = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf'
        await is_answered.wait()

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with served.client.post("/v1/files", data=stalling(), headers=headers) as answer:
        assert answer.status == 400
        assert "did not arrive in time" in (await answer.json())["error"]["message"]
        is_answered.set()
    assert files_in(served) == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.jsonl", "a.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\data\\in.jsonl", "in.jsonl"),
        ("a\x1b[31m\n", "a[31m"),
        (None, "file.jsonl"),
        ("..", "file.jsonl"),
    ],
)
def test_names_are_made_harmless(given: str | None, name: str) -> None:
    assert file_routes._file_name(given) == name


# ---- the form


def test_fields() -> None:
    form = parse_form({"purpose": "batch", "expires_after[seconds]": "3600"})
    assert form.expires_after == 3600
    assert parse_form({"purpose": "batch"}).expires_after is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"purpose": "x"},
        {"purpose": "batch", "expires_after[seconds]": "1"},
        {"purpose": "batch", "expires_after[anchor]": "x"},
        {"purpose": "batch", "more": "x"},
    ],
)
def test_what_is_wrong(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_form(given)
    assert error.value.field
