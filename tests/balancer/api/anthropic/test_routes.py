"""The Messages API over a fake fleet runtime."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.shared.errors import AgentLost, EngineFailed, InvalidRequest, QueueFull
from arriero.shared.inference import Failed, Token
from arriero.shared.queries import Counted
from tests.balancer.api.anthropic.strict import checked_error, checked_event, checked_message
from tests.balancer.api.counting_runtime import CountingFleetRuntime
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo

BODY = {"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime(echo)


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


async def ask(client: TestClient, **body: Any) -> tuple[int, Any, str]:
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "none"}
    async with client.post("/v1/messages", json=BODY | body, headers=headers) as response:
        return response.status, response.headers, await response.text()


def events(text: str) -> list[dict[str, Any]]:
    told = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


async def test_an_answer_in_one_piece(client: TestClient) -> None:
    status, headers, text = await ask(client)
    message = checked_message(json.loads(text))
    assert (status, f"msg_{headers['request-id']}") == (200, message.id)
    assert [block.model_dump()["text"] for block in message.content] == ["you said: hi"]
    assert message.model == "demo"


async def test_a_stream(client: TestClient) -> None:
    status, headers, text = await ask(client, stream=True)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    told = events(text)
    assert told[0]["message"]["id"] == f"msg_{headers['request-id']}"
    for event in told:
        checked_event(event)
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")


async def test_errors_before_the_first_event_are_statuses(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    async def refused(**body: Any) -> tuple[int, str, Any]:
        status, headers, text = await ask(client, **body)
        error = checked_error(json.loads(text))
        assert error.request_id == headers["request-id"] == headers["X-Request-Id"]
        return status, error.error.type, headers

    assert (await refused(max_tokens=None))[:2] == (400, "invalid_request_error")
    runtime.refusals.append(QueueFull("full"))
    status, type, headers = await refused()
    assert (status, type) == (529, "overloaded_error")
    assert headers["Retry-After"]
    runtime.script = lambda _request: [Failed(EngineFailed("broke"))]
    for stream in (False, True):
        assert (await refused(stream=stream))[:2] == (500, "api_error")


async def test_errors_in_a_stream_are_events(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _request: [Token("a"), Failed(AgentLost("gone"))]
    _, _, text = await ask(client, stream=True)
    assert events(text)[-1]["error"] == {"type": "api_error", "message": "gone"}


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("POST", "/v1/messages/strange", 404, "not_found_error"),
    ],
)
async def test_what_is_not_there(
    client: TestClient, method: str, path: str, status: int, type: str
) -> None:
    async with client.request(method, path) as response:
        assert response.status == status
        error = checked_error(await response.json())
        assert (error.error.type, error.request_id) == (type, response.headers["request-id"])


async def test_fields_go_by_their_names_in_the_body(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    field = "tools[0].function.parameters.properties.a"
    failed = Failed(InvalidRequest(f"`{field}` cannot be served", field=field))
    runtime.script = lambda _request: [failed]
    _, _, text = await ask(client)
    message = json.loads(text)["error"]["message"]
    assert message == "`tools[0].input_schema.properties.a` cannot be served"


async def test_counting() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    async with (
        TestClient(TestServer(inference_app(runtime))) as client,
        client.post("/v1/messages/count_tokens", json=body) as response,
    ):
        assert await response.json() == {"input_tokens": 7}
        assert response.headers["request-id"]
