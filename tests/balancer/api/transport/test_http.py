import asyncio
import gc
import json
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.transport.connections import Connections, ConnectionsRunner
from arriero.balancer.api.transport.hosts import AllowedHosts
from arriero.balancer.api.transport.http import (
    admit_origins,
    error_response,
    middleware,
)
from arriero.shared.errors import EngineFailed, InvalidRequest, QueueFull, RateLimited


async def nothing(_request: web.Request) -> web.Response:
    return web.json_response({})


async def broken(_request: web.Request) -> web.Response:
    raise KeyError("secret")


async def breaks_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun")
    raise KeyError("secret")


async def writes_too_late(request: web.Request) -> web.StreamResponse:
    """The client goes just before the end is written."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun")
    assert request.transport is not None
    request.transport.abort()
    await response.write_eof(b"end")
    raise AssertionError("this was written to nobody")


class Held:
    """Memory that a handler holds."""


held: list[weakref.ref[Held]] = []


async def refuses(_request: web.Request) -> web.Response:
    body = Held()
    held.append(weakref.ref(body))
    error = InvalidRequest("no")
    try:
        raise error
    except InvalidRequest as cause:
        raise error from cause  # as what renames fields does if there is nothing to rename


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_what_a_refused_request_took_is_free_at_once(
    client: TestClient, no_garbage_collector: None
) -> None:
    """The balancer's garbage collector runs so seldom that bodies of gigabytes would pile up."""
    async with client.get("/refuses") as response:
        assert response.status == 400
    async with client.get("/refuses") as response:
        assert response.status == 400
    assert held[0]() is None


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:
    app = web.Application(middlewares=[middleware()])
    app.add_routes(
        [
            web.post("/", nothing),
            web.get("/broken", broken),
            web.get("/refuses", refuses),
            web.get("/breaks_off", breaks_off),
            web.get("/writes_too_late", writes_too_late),
        ]
    )
    async with TestClient(TestServer(app)) as client:
        yield client


@asynccontextmanager
async def raw_client() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the same, for what aiohttp's client does not send."""
    app = web.Application(middlewares=[middleware()])
    app.add_routes([web.post("/", nothing), web.get("/broken", broken)])
    runner = ConnectionsRunner(app, Connections(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _, port = runner.addresses[0]
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            yield reader, writer
            writer.transport.abort()
    finally:
        await runner.cleanup()


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


async def test_the_pages_own_origin_may_go_on(client: TestClient) -> None:
    own = f"http://{client.host}:{client.port}"
    response = await client.post("/", json={}, headers={"Origin": own})
    assert response.status == 200


@pytest.mark.parametrize(
    "origin", ["http://elsewhere.example", "null", "", "http://", "http://127.0.0.1", "http://["]
)
async def test_other_origins_are_refused(client: TestClient, origin: str) -> None:
    response = await client.post("/", json={}, headers={"Origin": origin})
    assert (response.status, await error_of(response)) == (403, "forbidden")


async def test_unknown_path_and_wrong_method(client: TestClient) -> None:
    response = await client.get("/nowhere")
    assert (response.status, await error_of(response)) == (404, "not_found")
    response = await client.put("/")
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


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "x", "identity, gzip"])
@pytest.mark.parametrize("path", ["/", "/broken", "/nowhere"])
async def test_compressed_bodies_are_refused_everywhere(path: str, encoding: str) -> None:
    async with raw_client() as (reader, writer):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {encoding}"
        writer.write(head.encode() + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET http://localhost/broken HTTP/1.1\r\nHost: localhost", 500),
        ("GET http://127.0.0.1:1/broken HTTP/1.1\r\nHost: localhost", 500),
        ("GET http://evil.example/broken HTTP/1.1\r\nHost: localhost", 403),
        ("GET http://localhost@evil.example/broken HTTP/1.1\r\nHost: localhost", 403),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost", 403),
        ("POST / HTTP/1.0\r\nHost: localhost", 200),
        ("POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked", 400),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: Identity", 200),
    ],
)
async def test_what_targets_and_versions_are_answered(head: str, status: int) -> None:
    async with raw_client() as (reader, writer):
        writer.write(head.encode() + b"\r\n\r\n")
        assert int((await reader.readline()).split()[1]) == status


# ---- pages of other origins

PAGE = "https://chat.example"


@pytest.fixture
async def admitting() -> AsyncIterator[TestClient]:
    hosts = AllowedHosts([], [PAGE])
    app = web.Application(middlewares=[middleware(hosts=hosts)])
    app.add_routes([web.post("/", nothing), web.get("/broken", broken)])
    app.on_response_prepare.append(admit_origins(hosts))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_page_of_an_admitted_origin_asks_first(admitting: TestClient) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    names = "authorization, content-type, x-stainless-os"
    response = await admitting.options(
        "/", headers={**asked, "Access-Control-Request-Headers": names}
    )
    told = response.headers
    assert response.status == 204
    assert told["Access-Control-Allow-Origin"] == PAGE
    assert told["Access-Control-Allow-Headers"] == names
    assert "POST" in told["Access-Control-Allow-Methods"]
    assert "Access-Control-Allow-Credentials" not in told
    assert told["Vary"] == "Origin"


async def test_it_may_read_answers_and_errors(admitting: TestClient) -> None:
    for response in (
        await admitting.post("/", json={}, headers={"Origin": PAGE}),
        await admitting.get("/broken", headers={"Origin": PAGE}),
        await admitting.get("/nowhere", headers={"Origin": PAGE}),
    ):
        assert response.headers["Access-Control-Allow-Origin"] == PAGE
        assert response.headers["Access-Control-Expose-Headers"] == "*"


async def test_other_pages_are_refused_when_they_ask(
    admitting: TestClient, client: TestClient
) -> None:
    for each, origin in ((admitting, "https://evil.example"), (client, PAGE)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        response = await each.options("/", headers=asked)
        assert (response.status, await error_of(response)) == (403, "forbidden")
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_names_of_headers_are_not_repeated_if_they_are_none(admitting: TestClient) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    response = await admitting.options(
        "/", headers={**asked, "Access-Control-Request-Headers": "a b; c"}
    )
    assert "Access-Control-Allow-Headers" not in response.headers


async def test_a_client_that_has_gone_is_no_error(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with client.get("/writes_too_late") as response:
            with pytest.raises(ClientPayloadError):
                await response.read()
        assert (await client.post("/")).status == 200
    assert caplog.records == []
