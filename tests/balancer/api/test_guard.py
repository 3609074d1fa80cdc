"""Who gets through to a handler, and what those hear who do not."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientError, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.api import guard as guard_module
from arriero.balancer.api.app import inference_app
from arriero.balancer.api.guard import Needs, guard
from arriero.balancer.api.transport.callers import caller_of, known_caller
from arriero.balancer.api.transport.http import middleware
from arriero.shared.errors import Unauthorized
from tests.balancer.access.builders import record, secret
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo
from tests.waiting import HANGS

KEY = secret(1)
BEARER = {"Authorization": f"Bearer {KEY}"}
ACCESS = Access([record("ci", 1), record("eye", 2, "viewer")])


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:
    app = inference_app(FakeFleetRuntime(), access=ACCESS)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "pointer", "code"),
    [
        ("/v1/models", ("error", "code"), "unauthorized"),
        ("/v1/models", ("error", "type"), "authentication_error"),
        ("/v1/messages", ("error", "type"), "authentication_error"),
        ("/api/v1/generate", ("error", "code"), "unauthorized"),
        ("/nowhere", ("error", "code"), "unauthorized"),
    ],
)
async def test_each_api_says_unauthorized_in_its_form(
    client: TestClient, path: str, pointer: tuple[str, str], code: str
) -> None:
    response = await client.request("GET" if path == "/v1/models" else "POST", path)
    assert response.status == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    body = await response.json()
    assert body[pointer[0]][pointer[1]] == code


@pytest.mark.parametrize(
    ("path", "pointer", "code"),
    [
        ("/v1/completions", ("error", "code"), "forbidden"),
        ("/v1/messages", ("error", "type"), "permission_error"),
        ("/api/v1/generate", ("error", "code"), "forbidden"),
    ],
)
async def test_each_api_says_forbidden_in_its_form(
    client: TestClient, path: str, pointer: tuple[str, str], code: str
) -> None:
    response = await client.post(path, headers={"x-api-key": secret(2)}, json={})
    assert response.status == 403
    body = await response.json()
    assert body[pointer[0]][pointer[1]] == code
    assert "role viewer; this needs calling models" in body["error"]["message"]


async def test_with_a_key_it_goes_on_as_without(client: TestClient) -> None:
    for headers in (BEARER, {"x-api-key": KEY}):
        assert (await client.get("/v1/models", headers=headers)).status == 200
        assert (await client.get("/nowhere", headers=headers)).status == 404
        assert (await client.delete("/v1/models", headers=headers)).status == 405


async def test_health_needs_none(client: TestClient) -> None:
    assert (await client.get("/health")).status == 200
    assert (await client.get("/ready", headers={"x-api-key": "wrong"})).status == 200


@pytest.mark.parametrize("path", ["/health", "/v1/models", f"/{KEY}"])
async def test_a_key_in_a_url_is_refused_and_never_repeated(
    client: TestClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        response = await client.get(path, params={"key": KEY}, headers=BEARER)
    assert response.status == 401
    text = await response.text()
    assert "do not send an access key in a URL" in text
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("arriero")]
    assert ours and KEY not in text + "".join(ours)


async def test_a_socket_may_show_its_key_later_but_not_a_wrong_one(client: TestClient) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        assert not socket.closed
    wrong = await client.get(
        "/api/v1/socket",
        headers={"x-api-key": secret(5), "Upgrade": "websocket", "Connection": "upgrade"},
    )
    assert wrong.status == 401
    assert (await client.get("/api/v1/socket")).status == 401, "only for upgrades"
    async with client.ws_connect("/api/v1/socket", headers=BEARER) as socket:
        await socket.send_str('{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        assert (await socket.receive()).type is WSMsgType.TEXT


async def test_the_holder_is_the_caller() -> None:
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(caller_of(request))
        return web.Response()

    app = web.Application(middlewares=[middleware(), guard(ACCESS, {("GET", "/x"): Needs.CALL})])
    app.add_routes([web.get("/x", handler), web.post("/new", handler)])
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/x", headers=BEARER)).status == 200
        assert (await client.head("/x", headers=BEARER)).status == 200
        assert (await client.post("/new", headers=BEARER)).status == 403, "it has no row"
    assert {(caller.name, caller.owner) for caller in seen} == {("ci", "ci@1.000000")}


async def test_without_any_key_everything_is_as_before() -> None:
    async with TestClient(TestServer(inference_app(FakeFleetRuntime()))) as client:
        assert (await client.get("/v1/models", headers={"x-api-key": "sk-any"})).status == 200
        assert (await client.get("/v1/models", params={"key": KEY})).status == 401


# ---- a key that ends while its request is handled


class Handlers:
    """Handlers that do not end by themselves, and one that ends with what the test does."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.begun = asyncio.Event()

    def app(self) -> web.Application:
        paths = ("/waits", "/streams", "/revokes")
        table = {("POST", path): Needs.CALL for path in paths}
        app = web.Application(middlewares=[middleware(), guard(self.access, table)])
        for path in paths:
            app.router.add_post(path, getattr(self, path.removeprefix("/")))
        return app

    async def waits(self, _request: web.Request) -> web.Response:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def streams(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        return await self.waits(request)

    async def revokes(self, request: web.Request) -> web.Response:
        await request.read()
        self.access.put(record("ci", 1, revoked_at=1.0))
        caller = known_caller(request)
        with pytest.raises(Unauthorized, match="'ci' was revoked"):
            caller_of(request)
        return web.json_response({"name": caller.name})


@pytest.fixture
async def handlers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Handlers, TestClient]]:
    monkeypatch.setattr(guard_module, "GRACE", 0.0)
    handlers = Handlers(Access([record("ci", 1), record("other", 2)]))
    app = handlers.app()
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield handlers, client


async def test_an_answer_that_has_not_begun_is_401(handlers: tuple[Handlers, TestClient]) -> None:
    ours, client = handlers
    asking = asyncio.create_task(client.post("/waits", headers=BEARER))
    beside = asyncio.create_task(client.post("/waits", headers={"x-api-key": secret(2)}))
    await ours.begun.wait()
    ours.access.put(record("ci", 1, revoked_at=1.0))
    answer = await asking
    assert (answer.status, (await answer.json())["error"]["code"]) == (401, "unauthorized")
    assert not beside.done()
    beside.cancel()


async def test_an_answer_that_has_begun_and_does_not_end_is_cut(
    handlers: tuple[Handlers, TestClient],
) -> None:
    ours, client = handlers
    answer = await client.post("/streams", headers=BEARER)
    await ours.begun.wait()
    ours.access.put(record("ci", 1, revoked_at=1.0))
    with pytest.raises(ClientError):
        async with asyncio.timeout(HANGS):
            await answer.read()


async def test_who_revokes_the_own_key_is_answered(handlers: tuple[Handlers, TestClient]) -> None:
    _, client = handlers
    answer = await client.post("/revokes", headers=BEARER, json={})
    assert (answer.status, await answer.json()) == (200, {"name": "ci"})
    assert (await client.post("/revokes", headers=BEARER)).status == 401


# ---- what belongs to whom


async def test_a_response_is_its_callers_alone() -> None:
    runtime = FakeFleetRuntime()
    runtime.script = echo
    access = Access([record("a", 1), record("b", 2), record("boss", 3, "admin")])
    async with TestClient(TestServer(inference_app(runtime, access=access))) as client:
        mine, theirs, admins = ({"x-api-key": secret(number)} for number in (1, 2, 3))
        answer = await client.post("/v1/responses", headers=mine, json={"input": "Hi"})
        id = (await answer.json())["id"]
        path = f"/v1/responses/{id}"
        for other in (theirs, admins):
            assert (await client.get(path, headers=other)).status == 404
            assert (await client.get(f"{path}/input_items", headers=other)).status == 404
            assert (await client.post(f"{path}/cancel", headers=other)).status == 404
            assert (await client.delete(path, headers=other)).status == 404
            body = {"input": "And?", "previous_response_id": id}
            assert (await client.post("/v1/responses", headers=other, json=body)).status == 404
        assert (await client.get(path, headers=mine)).status == 200
        access.put(record("a", 4, created_at=99.0))
        later = {"x-api-key": secret(4)}
        assert (await client.get(path, headers=later)).status == 404, "another key of its name"


async def test_a_thread_is_its_callers_alone() -> None:
    runtime = FakeFleetRuntime()
    runtime.script = echo
    access = Access([record("a", 1), record("b", 2)])
    async with TestClient(TestServer(inference_app(runtime, access=access))) as client:
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        made = await client.post(
            "/v1/messages",
            headers={"x-api-key": secret(1)},
            json=body | {"thread": {"type": "create"}},
        )
        id = (await made.json())["id"]
        more = body | {"thread": {"type": "continue", "previous_message_id": id}}
        statuses = [
            (await client.post("/v1/messages", headers={"x-api-key": key}, json=more)).status
            for key in (secret(2), secret(1))
        ]
        assert statuses == [404, 200]


async def test_a_key_sees_its_models_only() -> None:
    runtime = FakeFleetRuntime()
    runtime.model_names = ["big", "tiny"]
    access = Access([record("a", 1, limits=CallerLimits(models=("tiny",))), record("b", 2)])
    async with TestClient(TestServer(inference_app(runtime, access=access))) as client:
        for key, names in ((secret(1), ["tiny"]), (secret(2), ["big", "tiny"])):
            listed = await client.get("/v1/models", headers={"x-api-key": key})
            assert [each["id"] for each in (await listed.json())["data"]] == names
            for name in ("big", "tiny"):
                one = await client.get(f"/v1/models/{name}", headers={"x-api-key": key})
                assert (one.status == 200) == (name in names)
                info = await client.post(
                    "/tokenize", headers={"x-api-key": key}, json={"model": name, "prompt": 1}
                )
                assert info.status == 400
