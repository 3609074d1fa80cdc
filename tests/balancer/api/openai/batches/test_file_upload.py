"""What is wrong with an upload is told, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import FormData

from arriero.balancer.api.openai.batches import file_upload
from arriero.balancer.api.openai.batches.file_upload import MAX_FIELD, MAX_PARTS, parse_form
from arriero.balancer.jobs.file_limits import FileLimits
from arriero.shared.errors import InvalidRequest
from tests.balancer.api.openai.batches.conftest import Served


def form(**fields: str | bytes) -> FormData:
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
    async with served.client.post("/v1/files", data=form(file=b"x", purpose="batch")) as answer:
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
    async with served.client.post("/v1/files", data=form(**fields)) as answer:
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
    data = form(file=b"x" * 1001, purpose="batch")
    async with served.client.post("/v1/files", data=data) as answer:
        assert answer.status == 413
    assert files_in(served) == []


async def test_what_comes_too_slowly(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_upload, "BODY_SILENCE", 0.01)
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
    assert file_upload._file_name(given) == name


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
