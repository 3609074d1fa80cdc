from collections.abc import AsyncIterator

import pytest

from arriero.client.errors import RequestFailed, Unreachable
from arriero.client.http import Http
from arriero.client.retries import NEVER, Retries
from tests.client.fakes import FakeServer, says, writes

QUICK = Retries(limit=3, first_pause=0.001, last_pause=0.001)
FULL = {"error": {"code": "queue_full", "message": "full", "retryable": True}}


@pytest.fixture
async def http(server: FakeServer) -> AsyncIterator[Http]:
    http = Http(server.url + "/", "ark_secret", NEVER)
    yield http
    await http.close()


async def test_a_call(server: FakeServer, http: Http) -> None:
    server.will(says({"a": 1}, ETag="x"))
    body, headers = await http.call("PUT", "/p", {"b": 2}, params={"q": "1"})
    assert (body, headers["ETag"]) == ({"a": 1}, "x")
    assert server.seen == [("PUT", "/p?q=1", b'{"b": 2}')]
    assert server.headers[0]["Authorization"] == "Bearer ark_secret"


async def test_a_call_without_a_body_has_none(server: FakeServer, http: Http) -> None:
    server.will(writes())
    assert (await http.call("DELETE", "/p"))[0] is None
    assert server.seen == [("DELETE", "/p", b"")]


async def test_a_refusal(server: FakeServer, http: Http) -> None:
    server.will(says(FULL, status=503, Retry_After="7", X_Request_Id="r9"))
    with pytest.raises(RequestFailed) as raised:
        await http.call("GET", "/")
    error = raised.value
    assert (error.code, error.status, error.retry_after, error.request_id) == (
        "queue_full",
        503,
        7.0,
        "r9",
    )


async def test_what_a_proxy_says(server: FakeServer, http: Http) -> None:
    async def gateway(_: object) -> object:
        from aiohttp import web

        return web.Response(text="<html>", status=502)

    server.will(gateway)  # type: ignore[arg-type]
    with pytest.raises(RequestFailed, match="unexpected answer with status 502"):
        await http.call("GET", "/")


async def test_a_broken_answer(server: FakeServer, http: Http) -> None:
    server.will(writes(b'{"a"', breaks=True))
    with pytest.raises(Unreachable, match="broke"):
        await http.call("GET", "/")


async def test_retries_end(server: FakeServer) -> None:
    http = Http(server.url, None, QUICK)
    server.will(says(FULL, status=503), writes(b"{", breaks=True), says({"a": 1}))
    assert (await http.call("GET", "/"))[0] == {"a": 1}
    server.will(*[says(FULL, status=503)] * 4)
    with pytest.raises(RequestFailed, match="queue_full"):
        await http.call("GET", "/")
    assert len(server.seen) == 3 + 4
    assert "Authorization" not in server.headers[0]
    await http.close()


async def test_a_mistake_is_not_tried_again(server: FakeServer) -> None:
    http = Http(server.url, None, QUICK)
    server.will(says({"error": {"code": "invalid_request", "message": "m"}}, status=400))
    with pytest.raises(RequestFailed, match="invalid_request"):
        await http.call("GET", "/")
    assert len(server.seen) == 1
    await http.close()


async def test_what_its_user_raises_is_left_alone(server: FakeServer, http: Http) -> None:
    server.will(says({}))
    with pytest.raises(TimeoutError, match="mine"):
        async with http.open("GET", "/"):
            raise TimeoutError("mine")
