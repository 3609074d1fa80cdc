"""Bodies: bounded in bytes, in values, in time, and all of them together."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.transport.bodies import (
    BODIES,
    LARGE_BYTES,
    MAX_BODY_BYTES,
    MAX_STRANGERS_BODY,
    Bodies,
    parsed,
)
from arriero.balancer.api.transport.http import middleware
from arriero.balancer.fleet.caller import Account, Caller
from arriero.balancer.fleet.shares import Shares
from arriero.shared.errors import InvalidRequest, Overloaded
from arriero.shared.json_size import MAX_VALUES
from tests.waiting import given_time, until

JSON = {"Content-Type": "application/json"}
ALICE = Caller("alice")


async def size(request: web.Request) -> web.Response:
    return web.json_response({"size": await parsed(request, len)})


@asynccontextmanager
async def serving(bodies: Bodies) -> AsyncIterator[TestClient]:
    app = web.Application(middlewares=[middleware()])
    app[BODIES] = bodies
    app.add_routes([web.post("/size", size)])
    with bodies:
        async with TestClient(TestServer(app)) as client:
            yield client


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:
    async with serving(Bodies()) as client:
        yield client


async def error_of(response: web.Response) -> str:
    return (await response.json())["error"]["code"]


class Pieces:
    """A body of which the test says what comes when."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, *pieces: bytes | None) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


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


async def test_a_body_of_which_no_more_comes_is_refused() -> None:
    pieces = Pieces()
    pieces.send(b"{")
    bodies = Bodies(silence=10.0)
    async with serving(bodies) as client, given_time() as time:
        answer = asyncio.create_task(client.post("/size", data=pieces, headers=JSON))
        await until(lambda: bodies.num_bytes == 1)
        await time.passes(10.0)
        response = await answer
        assert (response.status, await error_of(response)) == (400, "invalid_request")


async def test_each_piece_of_a_body_starts_the_longest_pause_anew() -> None:
    """Two pauses that are longer together than one may be."""
    bodies = Bodies(silence=10.0)
    async with serving(bodies) as client, given_time() as time:
        pieces = Pieces()
        answer = asyncio.create_task(client.post("/size", data=pieces, headers=JSON))
        for num_bytes in (1, 2, 3):
            pieces.send(b"x")
            await until(lambda expected=num_bytes: bodies.num_bytes == expected)
            await time.passes(7.0)
        pieces.send(None)
        assert await (await answer).json() == {"size": 3}


async def test_a_body_that_takes_too_long_as_a_whole_is_refused() -> None:
    """However steadily it comes."""
    bodies = Bodies(silence=10.0, whole=30.0)
    async with serving(bodies) as client, given_time() as time:
        pieces = Pieces()
        answer = asyncio.create_task(client.post("/size", data=pieces, headers=JSON))
        for num_bytes in range(1, 7):
            pieces.send(b"x")
            await until(lambda expected=num_bytes: bodies.num_bytes == expected)
            await time.passes(5.0)
        response = await answer
        assert (response.status, await error_of(response)) == (400, "invalid_request")


async def test_the_bytes_of_a_callers_bodies_together_are_bounded() -> None:
    """Alone it has half of what all may have."""
    bodies = Bodies(max_held_bytes=200)
    async with serving(bodies) as client:
        held = Pieces()
        held.send(b"x" * 60)
        answer = asyncio.create_task(client.post("/size", data=held, headers=JSON))
        await until(lambda: bodies.num_bytes == 60)
        response = await client.post("/size", data=b"x" * 41, headers=JSON)
        assert (response.status, await error_of(response)) == (503, "overloaded")
        assert response.headers["Retry-After"] == "1"
        assert (await client.post("/size", data=b"x" * 40, headers=JSON)).status == 200
        held.send(None)
        assert (await answer).status == 200
        assert bodies.num_bytes == 0
        assert (await client.post("/size", data=b"x" * 100, headers=JSON)).status == 200


def test_whoever_holds_much_leaves_room_for_others() -> None:
    bodies = Bodies(max_held_bytes=160, has_keys=lambda: True)
    with bodies.held(ALICE) as greedy, bodies.held(Caller("bob")) as other:
        greedy.add(80)
        with pytest.raises(Overloaded):
            greedy.add(1)
        other.add(40)
        with pytest.raises(Overloaded):
            other.add(1)
        greedy.give_back(60)
        other.add(20)
    assert bodies.num_bytes == 0


def test_strangers_have_a_small_share_together_until_they_show_a_key() -> None:
    bodies = Bodies(max_held_bytes=160, has_keys=lambda: True)
    one, other = Caller(address="1.1.1.1"), Caller(address="2.2.2.2")
    with bodies.held(one) as first, bodies.held(other) as second:
        first.add(6)
        second.add(4)
        with pytest.raises(Overloaded):
            second.add(1)
        first.move_to(bodies.holder_of(ALICE))
        first.add(70)
        second.add(6)
    assert bodies.num_bytes == 0


async def test_a_body_whose_request_has_no_room_is_refused_before_it_is_parsed() -> None:
    """By its length before it is read; by its values before it is parsed."""
    memory: Shares[Account] = Shares(9 * LARGE_BYTES)
    account = Account("anonymous", "127.0.0.1")
    async with serving(Bodies(memory=memory)) as client:
        memory.take(account, 3 * LARGE_BYTES)
        text = b"x" * LARGE_BYTES
        numbers = b"1," * (LARGE_BYTES // 16) + text
        assert (await client.post("/size", data=text, headers=JSON)).status == 200
        response = await client.post("/size", data=numbers, headers=JSON)
        assert (response.status, await error_of(response)) == (503, "overloaded")
        response = await client.post("/size", data=text + text, headers=JSON)
        assert (response.status, await error_of(response)) == (503, "overloaded")
        assert sum(memory.num_refused.values()) == 2
        memory.give_back(account, 3 * LARGE_BYTES)
        response = await client.post("/size", data=b"1," * LARGE_BYTES, headers=JSON)
        assert (response.status, await error_of(response)) == (413, "request_too_large")


async def test_a_stranger_sends_short_bodies() -> None:
    async with serving(Bodies(has_keys=lambda: True)) as client:
        response = await client.post("/size", data=b"x" * (MAX_STRANGERS_BODY + 1), headers=JSON)
        assert (response.status, await error_of(response)) == (413, "request_too_large")
        assert (
            await client.post("/size", data=b"x" * MAX_STRANGERS_BODY, headers=JSON)
        ).status == 200


async def test_a_body_that_brought_much_and_then_drips_is_refused() -> None:
    bodies = Bodies(silence=10.0)
    async with serving(bodies) as client, given_time() as time:
        pieces = Pieces()
        pieces.send(b"x" * 16 * 100)
        answer = asyncio.create_task(client.post("/size", data=pieces, headers=JSON))
        await until(lambda: bodies.num_bytes == 1600)
        for num_bytes in (1650, 1700):  # a sixteenth more, together
            await time.passes(4.0)
            pieces.send(b"x" * 50)
            await until(lambda expected=num_bytes: bodies.num_bytes == expected)
        await time.passes(9.0)
        pieces.send(b"x")
        await until(lambda: bodies.num_bytes == 1701)
        await time.passes(1.0)
        response = await answer
        assert (response.status, await error_of(response)) == (400, "invalid_request")


async def test_a_client_that_leaves_lets_go_of_its_bytes() -> None:
    bodies = Bodies()
    async with serving(bodies) as client:
        held = Pieces()
        held.send(b"x" * 60)
        answer = asyncio.create_task(client.post("/size", data=held, headers=JSON))
        await until(lambda: bodies.num_bytes == 60)
        answer.cancel()
        await until(lambda: bodies.num_bytes == 0)


async def test_a_body_of_too_many_values_is_refused_before_it_is_there(client: TestClient) -> None:
    pieces = Pieces()
    pieces.send(b"[", *[b"1," * 2**16] * (MAX_VALUES // 2**16 + 1))  # and no end
    response = await client.post("/size", data=pieces, headers=JSON)
    assert (response.status, await error_of(response)) == (400, "invalid_request")
    assert "values" in (await response.json())["error"]["message"]


async def test_large_bodies_are_parsed_on_a_thread_and_small_ones_are_not() -> None:
    with Bodies() as bodies:
        here = threading.get_ident()
        assert await bodies.off_loop(LARGE_BYTES - 1, threading.get_ident) == here
        assert await bodies.off_loop(LARGE_BYTES, threading.get_ident) != here


async def test_what_is_wrong_with_a_large_body_is_told() -> None:
    def refuse() -> None:
        raise InvalidRequest("no")

    with Bodies() as bodies, pytest.raises(InvalidRequest):
        await bodies.off_loop(LARGE_BYTES, refuse)


@pytest.mark.parametrize("encoding", ["gzip", "identity, gzip", "GZIP", "x"])
async def test_a_body_that_is_compressed(client: TestClient, encoding: str) -> None:
    headers = {**JSON, "Content-Encoding": encoding}
    response = await client.post("/size", data=b"", headers=headers)
    assert (response.status, await error_of(response)) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "application/octet-stream"}, 200),
        ({"Content-Type": "application/octet-stream", "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Content-Type": "text/plain"}, 200),
        ({"Content-Type": "text/plain", "Origin": "http://HOST"}, 400),
        ({"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 200),
        ({"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://HOST"}, 400),
        ({"Content-Type": "multipart/form-data"}, 400),
        ({"Content-Type": ""}, 400),
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 400),
    ],
)
async def test_browsers_must_call_json_json(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    host = f"{client.host}:{client.port}"
    headers = {name: value.replace("HOST", host) for name, value in headers.items()}
    response = await client.post(
        "/size", data=b"{}", headers=headers, skip_auto_headers=["Content-Type"]
    )
    assert response.status == status
