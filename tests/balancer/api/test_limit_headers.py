"""What a limited caller is told, by every API."""

from datetime import UTC, datetime

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.api.limit_headers import anthropic_headers, duration, openai_headers
from arriero.balancer.fleet.view import NO_STANDING, Level, Standing
from tests.balancer.api.scripted_fleet import scripted_fleet

MESSAGES = [{"role": "user", "content": "Hi"}]
STANDING = Standing(requests=Level(60, 59, 1.0), tokens=Level(1000, 0, 90.0))
LIMITED = CallerLimits(requests_per_minute=1, tokens_per_minute=1000, max_tokens=100)
CALLS = {
    "/api/v1/generate": {"prompt": "Hi"},
    "/v1/completions": {"prompt": "Hi", "model": "demo"},
    "/v1/chat/completions": {"messages": MESSAGES, "model": "demo"},
    "/v1/responses": {"input": "Hi", "model": "demo"},
}
ANTHROPIC = {"messages": MESSAGES, "model": "demo", "max_tokens": 5}


def test_openais_names() -> None:
    assert openai_headers(STANDING) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m30s",
    }


def test_anthropics_names() -> None:
    now = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    assert anthropic_headers(STANDING, now) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2026-01-31T23:59:01Z",
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2026-02-01T00:00:30Z",
    }


def test_without_limits_nothing_is_told() -> None:
    assert openai_headers(NO_STANDING) == {}
    assert anthropic_headers(NO_STANDING, datetime.now(UTC)) == {}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0s"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (1.5, "1.5s"),
        (60.0, "1m0s"),
        (59.9999, "1m0s"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


async def post(
    client: TestClient, path: str, body: dict[str, object]
) -> tuple[int, dict[str, str]]:
    async with client.post(path, json=body) as response:
        await response.read()
        return response.status, {name.lower(): value for name, value in response.headers.items()}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", CALLS)
async def test_every_api_tells_what_is_left_and_when_to_come_again(
    path: str, is_streamed: bool
) -> None:
    async with scripted_fleet(anonymous=LIMITED) as (client, _):
        body = {**CALLS[path], "stream": is_streamed}
        status, headers = await post(client, path, body)
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "1"
        assert headers["x-ratelimit-remaining-requests"] == "0"
        assert 0 < int(headers["x-ratelimit-remaining-tokens"]) < 1000
        status, headers = await post(client, path, body)
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 60
        assert headers["x-ratelimit-remaining-requests"] == "0"
        assert "x-should-retry" not in headers


async def test_anthropics_clients_are_told_in_their_words() -> None:
    async with scripted_fleet(anonymous=LIMITED) as (client, _):
        status, headers = await post(client, "/v1/messages", ANTHROPIC)
        assert status == 200
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert "x-ratelimit-limit-requests" not in headers
        async with client.post("/v1/messages", json=ANTHROPIC) as response:
            error = (await response.json())["error"]
            assert response.status == 429
            assert error["type"] == "rate_limit_error"
            assert "1 request a minute" in error["message"]
            assert int(response.headers["retry-after"]) >= 1


async def test_calls_over_a_socket_are_told_in_the_errors_data() -> None:
    async with scripted_fleet(anonymous=LIMITED) as (client, _):
        await post(client, "/api/v1/generate", CALLS["/api/v1/generate"])
        async with client.ws_connect("/api/v1/socket") as socket:
            await socket.send_json(
                {"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "Hi"}}
            )
            error = (await socket.receive_json())["error"]
        assert error["data"]["code"] == "rate_limited"
        assert 0 < error["data"]["retry_after"] <= 60


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/api/v1/generate", {"prompt": "Hi", "max_tokens": 500}, "max_tokens"),
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 500}, "max_tokens"),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "max_completion_tokens": 500},
            "max_completion_tokens",
        ),
    ],
)
async def test_an_answer_that_is_too_long_is_refused_with_the_limit(
    path: str, body: dict[str, object], name: str
) -> None:
    async with (
        scripted_fleet(anonymous=LIMITED) as (client, _),
        client.post(path, json=body) as response,
    ):
        assert response.status == 400
        error = (await response.json())["error"]
        assert f"`{name}`: must be at most 100" in error["message"]
        assert error.get("field", error.get("param")) == name


async def test_choices_that_do_not_all_fit_cost_nothing() -> None:
    body = {**CALLS["/v1/completions"], "max_tokens": 5}
    async with scripted_fleet(anonymous=CallerLimits(requests_per_minute=3)) as (client, _):
        status, headers = await post(client, "/v1/completions", body)
        assert (status, headers["x-ratelimit-remaining-requests"]) == (200, "2")
        status, headers = await post(client, "/v1/completions", {**body, "n": 3})
        assert (status, headers["x-ratelimit-remaining-requests"]) == (429, "2")
        status, headers = await post(client, "/v1/completions", {**body, "n": 2})
        assert (status, headers["x-ratelimit-remaining-requests"]) == (200, "0")
        status, _ = await post(client, "/v1/completions", {**body, "n": 4})
        assert status == 400, "no waiting helps"
