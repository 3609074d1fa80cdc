import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arriero.client.errors import RequestFailed, Unreachable, Untrusted
from arriero.client.http import Http, tls_of
from arriero.client.retries import NEVER, Retries
from arriero.shared.tls.contexts import server_context
from arriero.shared.tls.key_pair import KeyPair
from tests.authority import Authority
from tests.client.fakes import FakeServer, says, serving, writes

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


class TestTls:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path)

    @pytest.fixture
    async def served(self, authority: Authority) -> AsyncIterator[FakeServer]:
        files = authority.sign("server", "127.0.0.1")
        context = server_context(KeyPair(files.cert, files.key), time.time()).context
        async with serving(context) as server:
            yield server

    async def test_an_authority_of_ones_own(self, served: FakeServer, authority: Authority) -> None:
        served.will(says({}))
        http = Http(served.url, None, NEVER, tls_of(authority.ca))
        body, _ = await http.call("GET", "/")
        assert body == {}
        await http.close()

    async def test_who_is_not_trusted_is_not_asked_again(self, served: FakeServer) -> None:
        http = Http(served.url, None, QUICK)
        with pytest.raises(Untrusted, match=r"unable to get local issuer|self-signed") as error:
            await http.call("GET", "/")
        assert "--tls-ca" in str(error.value)
        await http.close()
        assert served.seen == []

    async def test_another_name(self, served: FakeServer, authority: Authority) -> None:
        url = served.url.replace("127.0.0.1", "localhost")
        http = Http(url, None, NEVER, tls_of(str(authority.ca)))
        with pytest.raises(Untrusted, match="Hostname mismatch"):
            await http.call("GET", "/")
        await http.close()

    def test_an_authority_that_is_none(self, tmp_path: Path) -> None:
        assert tls_of(None) is True
        with pytest.raises(ValueError, match=r"^tls_ca: cannot read"):
            tls_of(tmp_path / "none")
