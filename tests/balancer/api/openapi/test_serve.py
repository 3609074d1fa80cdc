"""The document over HTTP."""

import asyncio
import threading
from collections.abc import Callable

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.openapi.serve import openapi_routes
from tests.waiting import HANGS

DOCUMENT = b'{"openapi": "3.1.0"}'


def client_of(build: Callable[[], bytes]) -> TestClient:
    app = web.Application()
    app.add_routes(openapi_routes(build))
    return TestClient(TestServer(app, handler_cancellation=True))


async def test_it_is_served_as_it_is() -> None:
    async with client_of(lambda: DOCUMENT) as client:
        response = await client.get("/openapi.json")
        assert response.content_type == "application/json"
        assert await response.read() == DOCUMENT


async def test_it_is_built_once_and_when_it_is_asked_for() -> None:
    threads: list[threading.Thread] = []

    def build() -> bytes:
        threads.append(threading.current_thread())
        return DOCUMENT

    async with client_of(build) as client:
        assert threads == []
        responses = await asyncio.gather(*(client.get("/openapi.json") for _ in range(8)))
        assert [await response.read() for response in responses] == [DOCUMENT] * 8
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_client_that_leaves_while_it_is_built_takes_it_from_nobody() -> None:
    loop = asyncio.get_running_loop()
    is_building, may_end = asyncio.Event(), threading.Event()

    def build() -> bytes:
        loop.call_soon_threadsafe(is_building.set)
        assert may_end.wait(HANGS)
        return DOCUMENT

    async with client_of(build) as client, asyncio.timeout(HANGS):
        leaving = asyncio.create_task(client.get("/openapi.json"))
        await is_building.wait()
        staying = asyncio.create_task(client.get("/openapi.json"))
        leaving.cancel()
        await asyncio.wait({leaving})
        may_end.set()
        response = await staying
        assert await response.read() == DOCUMENT
