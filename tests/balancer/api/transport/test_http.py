import asyncio
import json
import logging
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.transport.http import (
    MAX_BODY_BYTES,
    error_response,
    middlewares,
    read_json_body,
)
from arriero.shared.errors import EngineFailed, InvalidRequest, QueueFull, RateLimited

JSON = {"Content-Type": "application/json"}


async def size(request: web.Request) -> web.Response:
    return web.json_response({"size": len(await read_json_body(request))})


async def impatient(request: web.Request) -> web.Response:
    return web.json_response({"size": len(await read_json_body(request, silence=0.05))})


async def broken(_request: web.Request) -> web.Response:
    raise KeyError("secret")


async def breaks_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun")
    raise KeyError("secret")


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:
    app = web.Application(middlewares=middlewares())
    app.add_routes(
        [
            web.post("/size", size),
            web.post("/impatient", impatient),
            web.get("/broken", broken),
            web.get("/breaks_off", breaks_off),
        ]
    )
    async with TestClient(TestServer(app)) as client:
        yield client


async def error_of(response: web.Response) -> str:
    return (await response.json())["error"]["code"]


def test_retry_after_is_whole_seconds_rounded_up() -> None:
    assert error_response(QueueFull("full")).headers["Retry-After"] == "1"
    assert error_response(RateLimited("slow", retry_after=1.2)).headers["Retry-After"] == "2"
    assert error_response(RateLimited("slow", retry_after=0)).headers["Retry-After"] == "1"
    assert "Retry-After" not in error_response(EngineFailed("oops")).headers


def test_clients_that_repeat_every_5xx_are_told_when_it_is_of_no_use() -> None:
    assert error_response(InvalidRequest("no")).headers["X-Should-Retry"] == "false"
    assert "X-Should-Retry" not in error_response(QueueFull("full")).headers


async def test_a_body_up_to_the_limit_is_read(client: TestClient) -> None:
    response = await client.post("/size", data=BytesIO(b"x" * MAX_BODY_BYTES), headers=JSON)
    assert await response.json() == {"size": MAX_BODY_BYTES}


async def test_a_body_over_the_limit_is_refused(client: TestClient) -> None:
    response = await client.post("/size", data=BytesIO(b"x" * (MAX_BODY_BYTES + 1)), headers=JSON)
    assert (response.status, await error_of(response)) == (413, "request_too_large")


async def test_a_chunked_body_over_the_limit_is_refused(client: TestClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"x" * 1024 * 1024

    response = await client.post("/size", data=chunks(), headers=JSON)
    assert (response.status, await error_of(response)) == (413, "request_too_large")


async def test_a_body_of_which_no_more_comes_is_refused(client: TestClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    response = await client.post("/impatient", data=chunks(), headers=JSON)
    assert (response.status, await error_of(response)) == (400, "invalid_request")


async def test_a_body_that_is_not_encoded_as_it_says(client: TestClient) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    response = await client.post("/size", data=b"no gzip at all", headers=headers)
    assert (response.status, await error_of(response)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ({"Content-Type": ""}, 400),
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 400),
    ],
)
async def test_json_must_be_called_json(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    response = await client.post(
        "/size", data=b"{}", headers=headers, skip_auto_headers=["Content-Type"]
    )
    assert response.status == status


async def test_the_pages_own_origin_may_go_on(client: TestClient) -> None:
    own = f"http://{client.host}:{client.port}"
    response = await client.post("/size", json={}, headers={"Origin": own})
    assert response.status == 200


@pytest.mark.parametrize(
    "origin", ["http://elsewhere.example", "null", "", "http://", "http://127.0.0.1", "http://["]
)
async def test_other_origins_are_refused(client: TestClient, origin: str) -> None:
    response = await client.post("/size", json={}, headers={"Origin": origin})
    assert (response.status, await error_of(response)) == (403, "forbidden")


async def test_unknown_path_and_wrong_method(client: TestClient) -> None:
    response = await client.get("/nowhere")
    assert (response.status, await error_of(response)) == (404, "not_found")
    response = await client.put("/size")
    assert (response.status, await error_of(response)) == (405, "method_not_allowed")
    assert response.headers["Allow"] == "POST"


async def test_a_mistake_of_ours_is_logged_and_not_told(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = await client.get("/broken")
    assert (response.status, await error_of(response)) == (500, "internal_error")
    assert "secret" not in json.dumps(await response.json())
    assert "secret" in caplog.text


async def test_a_mistake_after_the_start_cuts_the_connection(client: TestClient) -> None:
    response = await client.get("/breaks_off")
    with pytest.raises(ClientPayloadError):
        await response.read()
