"""Logging in with a key, and out; what a cookie opens, what changes something, and its end."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jsonschema
import pytest
from aiohttp import CookieJar
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.session_routes import (
    COOKIE,
    CSRF_HEADER,
    SIGN_OUT_HEADER,
)
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from tests.balancer import documents
from tests.balancer.access.builders import record, secret
from tests.balancer.management.apps import management_app

DOCUMENT = documents.management()
ROLES = ("admin", "operator", "viewer", "inference", "agent")


@pytest.fixture
def access() -> Access:
    return Access([record(role, number, role) for number, role in enumerate(ROLES, start=1)])


@pytest.fixture
async def client(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    desired_state: DesiredStateService,
    access: Access,
) -> AsyncIterator[TestClient]:
    app = management_app(runtime, hub, metrics, desired_state=desired_state, access=access)
    jar = CookieJar(unsafe=True)
    async with TestClient(TestServer(app), cookie_jar=jar) as client:
        yield client


def check(body: Any) -> None:
    schema = DOCUMENT["components"]["schemas"]["SessionState"]
    jsonschema.Draft202012Validator(schema | {"components": DOCUMENT["components"]}).validate(body)


async def log_in(client: TestClient, role: str) -> Any:
    key = secret(ROLES.index(role) + 1)
    async with client.post("/api/v1/session", json={"key": key}) as answer:
        assert answer.status == 200
        body = await answer.json()
        check(body)
        return body


async def status(client: TestClient, method: str, path: str, **headers: str) -> int:
    async with client.request(method, path, headers=headers) as answer:
        return answer.status


async def test_who_is_logged_in(client: TestClient) -> None:
    nobody = {
        "needs_key": True,
        "name": None,
        "role": None,
        "csrf": None,
        "expires_at": None,
        "sign_out": None,
    }
    async with client.get("/api/v1/session") as answer:
        assert (answer.status, await answer.json()) == (200, nobody)
        assert answer.headers["Cache-Control"] == "no-store"
    assert await status(client, "GET", "/api/v1/agents") == 401
    session = await log_in(client, "viewer")
    assert (session["needs_key"], session["name"], session["role"]) == (True, "viewer", "viewer")
    async with client.get("/api/v1/session") as answer:
        assert await answer.json() == session
    assert await status(client, "GET", "/api/v1/agents") == 200
    async with client.get("/api/v1/events") as events:
        assert events.status == 200
        assert await events.content.readline() == b"event: snapshot\n"


async def test_the_cookie_is_for_this_server_and_no_script(client: TestClient) -> None:
    answer = await client.post("/api/v1/session", json={"key": secret(1)})
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert secret(1) not in cookie + await answer.text()
    behind = {"X-Forwarded-Proto": "https"}
    secure = await client.post("/api/v1/session", json={"key": secret(1)}, headers=behind)
    assert "Secure" in secure.headers["Set-Cookie"].split("; ")


async def test_a_call_that_changes_something_needs_the_header(client: TestClient) -> None:
    session = await log_in(client, "operator")
    path = "/api/v1/requests/none"
    assert await status(client, "DELETE", path) == 403
    assert await status(client, "DELETE", path, **{CSRF_HEADER: "wrong"}) == 403
    assert await status(client, "DELETE", path, **{CSRF_HEADER: "wröng"}) == 403
    assert await status(client, "DELETE", path, **{CSRF_HEADER: session["csrf"]}) == 404
    bearer = {"Authorization": f"Bearer {secret(2)}"}
    assert await status(client, "DELETE", path, **bearer) == 404, "a key is no cookie"


async def test_a_session_may_what_its_key_may(client: TestClient) -> None:
    viewer = await log_in(client, "viewer")
    header = {CSRF_HEADER: viewer["csrf"]}
    assert await status(client, "DELETE", "/api/v1/requests/none", **header) == 403
    assert await status(client, "POST", "/api/v1/generate", **header) == 403
    assert await status(client, "GET", "/api/v1/keys") == 403
    admin = await log_in(client, "admin")
    assert await status(client, "GET", "/api/v1/keys") == 200
    assert admin["csrf"] != viewer["csrf"]


@pytest.mark.parametrize("role", ["agent", "inference"])
async def test_who_may_see_nothing_is_told_so(client: TestClient, role: str) -> None:
    key = secret(ROLES.index(role) + 1)
    async with client.post("/api/v1/session", json={"key": key}) as answer:
        assert answer.status == 403
        assert "log in as viewer" in (await answer.json())["error"]["message"]
        assert "Set-Cookie" not in answer.headers


async def test_a_key_in_the_headers_needs_no_session(client: TestClient) -> None:
    """A proxy adds it to whatever its users send."""
    header = {"Authorization": f"Bearer {secret(ROLES.index('operator') + 1)}"}
    somebody = {"needs_key": True, "name": "operator", "role": "operator", "sign_out": None}
    async with client.get("/api/v1/session", headers=header) as answer:
        body = await answer.json()
        assert (answer.status, body) == (200, somebody | {"csrf": None, "expires_at": None})
        assert "Set-Cookie" not in answer.headers
    check(body)
    await log_in(client, "viewer")
    async with client.get("/api/v1/session", headers=header) as answer:
        assert (await answer.json())["name"] == "operator", "whom calls are of, too"
    assert await status(client, "POST", "/api/v1/agents/x/drain", **header) == 404
    wrong = {"Authorization": f"Bearer {secret(99)}"}
    async with client.get("/api/v1/session", headers=wrong) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (401, "unauthorized")
    program = {"Authorization": f"Bearer {secret(ROLES.index('inference') + 1)}"}
    assert await status(client, "GET", "/api/v1/session", **program) == 403


@pytest.mark.parametrize(
    "place", ["/oauth2/sign_out?rd=%2F", "/", "https://login.example.com/end", "http://[::1]:80/"]
)
async def test_a_proxy_says_where_its_session_ends(client: TestClient, place: str) -> None:
    told = {SIGN_OUT_HEADER: place}
    by_key = told | {"Authorization": f"Bearer {secret(ROLES.index('viewer') + 1)}"}
    for headers in (told, by_key):
        async with client.get("/api/v1/session", headers=headers) as answer:
            body = await answer.json()
            assert body["sign_out"] == place
            check(body)
    key = {"key": secret(1)}
    async with client.post("/api/v1/session", json=key, headers=told) as answer:
        body = await answer.json()
        assert body["sign_out"] == place
    header = {CSRF_HEADER: body["csrf"]}
    async with client.delete("/api/v1/session", headers=told | header) as answer:
        assert (await answer.json())["sign_out"] == place


@pytest.mark.parametrize(
    "place",
    [
        *("", "oauth2/sign_out", "//evil.example", "/\\evil.example", "javascript:alert(1)"),
        *("https://", "https:///x", "/a b", "ftp://host/", "/\u00e4"),
    ],
)
async def test_what_is_no_place_to_sign_out_is_told_to_who_wrote_it(
    client: TestClient, place: str
) -> None:
    for method in ("GET", "DELETE", "POST"):
        body = {"json": {"key": secret(1)}} if method == "POST" else {}
        headers = {SIGN_OUT_HEADER: place}
        async with client.request(method, "/api/v1/session", headers=headers, **body) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["field"]) == (400, SIGN_OUT_HEADER)
            assert "must be a path, such as /oauth2/sign_out" in error["message"]
            assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"key": secret(99)}, 401),
        ({"key": "password"}, 401),
        ({"key": ""}, 400),
        ({}, 400),
        ({"key": "x" * 513}, 400),
        ({"key": secret(1), "more": 1}, 400),
    ],
)
async def test_what_is_no_key(client: TestClient, body: Any, code: int) -> None:
    async with client.post("/api/v1/session", json=body) as answer:
        assert answer.status == code
        assert secret(1) not in await answer.text()


async def test_a_page_of_another_origin_cannot_log_in(client: TestClient) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Content-Type": "text/plain"}):
        data = b'{"key": "%b"}' % secret(1).encode()
        async with client.post("/api/v1/session", data=data, headers=headers) as answer:
            assert answer.status in (400, 403)
            assert "Set-Cookie" not in answer.headers


async def test_logging_out(client: TestClient) -> None:
    session = await log_in(client, "viewer")
    assert await status(client, "DELETE", "/api/v1/session") == 403
    cookies = client.session.cookie_jar.filter_cookies(client.make_url("/"))
    stolen = f"{COOKIE}={cookies[COOKIE].value}"
    header = {CSRF_HEADER: session["csrf"]}
    async with client.delete("/api/v1/session", headers=header) as answer:
        assert (answer.status, (await answer.json())["name"]) == (200, None)
    assert await status(client, "GET", "/api/v1/agents") == 401
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as other:
        url = client.make_url("/api/v1/agents")
        async with other.get(url, headers={"Cookie": stolen}) as answer:
            assert answer.status == 401, "it ended here, too"
            assert "log in again" in (await answer.json())["error"]["message"]
    assert await status(client, "DELETE", "/api/v1/session") == 200


async def test_logging_in_anew_ends_the_session_before(client: TestClient, access: Access) -> None:
    await log_in(client, "viewer")
    cookies = client.session.cookie_jar.filter_cookies(client.make_url("/"))
    before = f"{COOKIE}={cookies[COOKIE].value}"
    await log_in(client, "admin")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as other:
        url = client.make_url("/api/v1/agents")
        async with other.get(url, headers={"Cookie": before}) as answer:
            assert answer.status == 401


async def test_a_session_ends_with_its_key(client: TestClient, access: Access) -> None:
    await log_in(client, "operator")
    assert await status(client, "GET", "/api/v1/agents") == 200
    access.forget("operator")
    assert await status(client, "GET", "/api/v1/agents") == 401
    async with client.get("/api/v1/session") as answer:
        assert (await answer.json())["name"] is None


async def test_without_keys_nobody_logs_in(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> None:
    async with TestClient(
        TestServer(management_app(runtime, hub, metrics, desired_state=desired_state))
    ) as open_:
        async with open_.get("/api/v1/session") as answer:
            assert (await answer.json())["needs_key"] is False
        async with open_.post("/api/v1/session", json={"key": secret(1)}) as answer:
            assert answer.status == 409
        assert await status(open_, "GET", "/api/v1/agents", Cookie=f"{COOKIE}=old") == 200
