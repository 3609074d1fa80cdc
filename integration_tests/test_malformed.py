"""Whatever is sent, an answer comes back, and nobody else notices."""

import asyncio
import json
from io import BytesIO
from typing import Any

import pytest

from arriero.shared.messages import PROTOCOL_VERSION
from integration_tests.corpus import ENDLESS, generate, plain_cases
from integration_tests.daemons import Fleet, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODIES: list[tuple[bytes, str]] = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"\xff\xfe", "JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b"{}", "prompt"),
    (b'{"prompt": 1}', "prompt"),
    (b'{"prompt": "a", "messages": []}', "messages"),
    (b'{"messages": []}', "messages"),
    (b'{"messages": [{"role": "nobody", "content": "a"}]}', "messages[0].role"),
    (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
    (b'{"messages": [{"role": "user"}]}', "`messages[0].content` is missing"),
    (b'{"messages": [{"role": "tool", "content": "a"}]}', "messages[0].tool_call_id"),
    (b'{"prompt": "a", "no_such_field": 1}', "no_such_field"),
    (b'{"prompt": "a", "max_tokens": 0}', "max_tokens"),
    (b'{"prompt": "a", "max_tokens": "ten"}', "max_tokens"),
    (b'{"prompt": "a", "temperature": -1}', "temperature"),
    (b'{"prompt": "a", "temperature": NaN}', "temperature"),
    (b'{"prompt": "a", "top_p": 2}', "top_p"),
    (b'{"prompt": "a", "stop": [""]}', "stop[0]"),
    (b'{"prompt": "a", "seed": -1}', "seed"),
    (b'{"prompt": "a", "logit_bias": {"x": 1}}', "logit_bias"),
    (b'{"prompt": "a", "stream": "yes"}', "stream"),
    (b"[" * 100_000, "JSON"),
]


async def still_answers(fleet: Fleet) -> None:
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer


async def post(fleet: Fleet, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    async with fleet.http.post(
        fleet.inference + path, data=BytesIO(body), headers=headers
    ) as response:
        return response.status, await response.json()


async def test_every_malformed_body_names_what_is_wrong(shared_fleet: Fleet) -> None:
    for body, named in BODIES:
        status, answer = await post(shared_fleet, "/api/v1/generate", body)
        assert status == 400, body
        assert answer["error"]["code"] == "invalid_request", body
        assert named in answer["error"]["message"], (body, answer)
    await still_answers(shared_fleet)


async def test_bodies_nested_to_the_limit_take_no_agent_down(shared_fleet: Fleet) -> None:
    """What can be parsed here is nested deeper on its way to an agent."""
    await shared_fleet.hold()
    running = asyncio.create_task(
        generate(shared_fleet.http, shared_fleet.inference, ENDLESS | {"max_tokens": 1000})
    )
    await shared_fleet.until_streaming(1)
    for depth in range(188, 200):
        parameters = b'{"a":' * depth + b"1" + b"}" * depth
        tool = b'{"type": "function", "function": {"name": "f", "parameters": ' + parameters + b"}}"
        body = b'{"messages": [{"role": "user", "content": "x"}], "tools": [' + tool + b"]}"
        status, answer = await post(shared_fleet, "/api/v1/count_tokens", body)
        assert (status, "num_tokens" in answer) in ((200, True), (400, False)), answer
    assert status == 400
    assert "more than 200 levels" in answer["error"]["message"]
    await shared_fleet.let_go()
    assert (await running).end["event"] == "done"


async def test_openai_doors_answer_the_same_bodies_in_their_own_shape(shared_fleet: Fleet) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        for body, _ in BODIES[:5]:
            status, answer = await post(shared_fleet, path, body)
            assert status == 400, body
            assert answer["error"]["type"] == "invalid_request_error", body
            assert answer["error"]["message"], body
    await still_answers(shared_fleet)


async def test_a_body_over_the_limit_is_413(shared_fleet: Fleet) -> None:
    body = json.dumps({"prompt": "a" * (17 * 1024 * 1024)}).encode()
    for path in ("/api/v1/generate", "/v1/completions"):
        status, answer = await post(shared_fleet, path, body)
        assert status == 413
        assert answer["error"]["message"]
    await still_answers(shared_fleet)


async def test_unknown_paths_and_methods_are_answered_in_json(shared_fleet: Fleet) -> None:
    for base in (shared_fleet.inference, shared_fleet.management):
        async with shared_fleet.http.get(f"{base}/no/such/path") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not_found"
    async with shared_fleet.http.get(f"{shared_fleet.inference}/api/v1/generate") as response:
        assert response.status == 405
        assert (await response.json())["error"]["message"]


async def test_a_page_of_another_origin_is_refused(shared_fleet: Fleet) -> None:
    headers = {"Origin": "http://elsewhere.example"}
    for url in (
        f"{shared_fleet.inference}/api/v1/generate",
        f"{shared_fleet.management}/api/v1/generate",
    ):
        async with shared_fleet.http.post(url, json={"prompt": "a"}, headers=headers) as response:
            assert response.status == 403


FRAMES = [
    "",
    "{",
    "[]",
    "null",
    '{"type": "no_such_type"}',
    '{"type": "output", "items": []}',
    '{"type": "hello"}',
    '{"type": "hello", "protocol": 999, "agent_id": "x", "name": "x", "version": "9", "slots": 1}',
    '{"type": "hello", "protocol": 2, "agent_id": "x", "name": "x", "version": "9", "slots": -1}',
]


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_peer_that_is_no_agent_is_turned_away(shared_fleet: Fleet, frame: str) -> None:
    url = f"{shared_fleet.management}/api/v1/agent-socket"
    async with shared_fleet.http.ws_connect(url) as ws:
        await ws.send_str(frame)
        received = [message.data async for message in ws]
    assert ws.close_code is not None
    assert all(json.loads(data)["type"] == "reject" for data in received)
    assert len(await shared_fleet.view("agents")) == 1
    await still_answers(shared_fleet)


async def test_an_agent_that_turns_to_junk_is_dropped(shared_fleet: Fleet) -> None:
    hello = {
        "type": "hello",
        "protocol": PROTOCOL_VERSION,
        "agent_id": "liar",
        "name": "liar",
        "version": "1",
        "slots": 0,
    }
    async with shared_fleet.http.ws_connect(f"{shared_fleet.management}/api/v1/agent-socket") as ws:
        await ws.send_json(hello)
        assert (await ws.receive_json())["type"] == "welcome"
        assert len(await shared_fleet.view("agents")) == 2
        await ws.send_json(
            {"type": "output", "items": [{"type": "piece", "id": "nobody", "text": "x"}]}
        )
        await ws.send_bytes(b"\x00\xff")
        async for _ in ws:
            pass

    async def is_gone() -> bool:
        return [agent["name"] for agent in await shared_fleet.view("agents")] == ["agent-1"]

    await until(is_gone)
    await still_answers(shared_fleet)
