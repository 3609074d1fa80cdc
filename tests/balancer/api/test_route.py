"""Routes: what they need, what they serve, and their document over HTTP."""

import asyncio
import threading
from collections.abc import Iterable, Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.guard import Needs
from arriero.balancer.api.openapi.document import Doc, json_answer
from arriero.balancer.api.route import OPENAI, Route, document_route, mount, permissions
from tests.waiting import HANGS


async def name(request: web.Request) -> web.Response:
    return web.Response(text=request.match_info["name"])


DOC = Doc("Thing", "A thing.", {200: json_answer("It.", {"type": "string"})})
THING = Route("GET", "/things/{name:.+}", Needs.VIEW, name, DOC)
FOREIGN = Route("POST", "/v1/{name}", Needs.CALL, name, OPENAI)
ENDLESS = Route("GET", "/events/{name}", Needs.VIEW, name, DOC, is_endless=True)


def client_of(*routes: Route) -> TestClient:
    app = web.Application()
    mount(app, routes)
    return TestClient(TestServer(app, handler_cancellation=True))


def test_a_table_says_what_each_needs() -> None:
    assert permissions([THING, FOREIGN]) == {
        ("GET", "/things/{name}"): Needs.VIEW,
        ("POST", "/v1/{name}"): Needs.CALL,
    }


def test_a_route_that_is_declared_twice_is_named() -> None:
    again = Route("GET", "/things/{name}", Needs.CALL, name, DOC)
    with pytest.raises(ValueError, match=r"GET /things/\{name\} is declared twice"):
        permissions([THING, again])


async def test_they_are_served() -> None:
    async with client_of(THING, FOREIGN, ENDLESS) as client:
        assert await (await client.get("/things/a/b")).text() == "a/b"
        assert await (await client.post("/v1/x")).text() == "x"
        assert (await client.head("/things/a")).status == 200
        assert (await client.head("/events/a")).status == 405


async def test_those_of_others_are_not_described() -> None:
    async with client_of(THING, FOREIGN, document_route("Us")) as client:
        response = await client.get("/openapi.json")
        assert response.content_type == "application/json"
        document = await response.json()
    assert document["info"]["title"] == "Us"
    assert document["paths"].keys() == {"/things/{name}", "/openapi.json"}


class WatchedRoutes(list[Route]):
    """Routes that note which thread looks at them, and hold it up until it may go on."""

    def __init__(self, routes: Iterable[Route]) -> None:
        super().__init__(routes)
        self.threads: list[threading.Thread] = []
        self.is_looked_at = threading.Event()
        self.may_go_on = threading.Event()

    def __iter__(self) -> Iterator[Route]:
        if threading.current_thread() is not threading.main_thread():
            self.threads.append(threading.current_thread())
            self.is_looked_at.set()
            assert self.may_go_on.wait(HANGS)
        return super().__iter__()


def client_of_watched(routes: WatchedRoutes) -> TestClient:
    app = web.Application()
    mount(app, routes)
    return TestClient(TestServer(app, handler_cancellation=True))


async def test_the_document_is_built_once_and_when_it_is_asked_for() -> None:
    routes = WatchedRoutes([document_route("Us")])
    routes.may_go_on.set()
    async with client_of_watched(routes) as client:
        assert routes.threads == []
        responses = await asyncio.gather(*(client.get("/openapi.json") for _ in range(8)))
        assert len({await response.read() for response in responses}) == 1
    assert len(routes.threads) == 1


async def test_a_client_that_leaves_while_it_is_built_takes_it_from_nobody() -> None:
    routes = WatchedRoutes([document_route("Us")])
    async with client_of_watched(routes) as client, asyncio.timeout(HANGS):
        leaving = asyncio.create_task(client.get("/openapi.json"))
        await asyncio.to_thread(routes.is_looked_at.wait, HANGS)
        staying = asyncio.create_task(client.get("/openapi.json"))
        leaving.cancel()
        await asyncio.wait({leaving})
        routes.may_go_on.set()
        response = await staying
        assert (await response.json())["info"]["title"] == "Us"
