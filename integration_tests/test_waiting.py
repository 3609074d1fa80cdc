"""What clients hear while their request waits: for a slot, and for a model that is on its way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import DEADLINE, MODEL, Fleet


@asynccontextmanager
async def streamed(fleet: Fleet, path: str, body: Any) -> AsyncIterator[aiohttp.StreamReader]:
    headers = {"Prefer": "wait=1"}
    async with fleet.http.post(f"{fleet.inference}{path}", json=body, headers=headers) as response:
        assert response.status == 200
        yield response.content


async def line_with(content: aiohttp.StreamReader, word: bytes) -> bytes:
    """The next line with `word` in it."""
    async with asyncio.timeout(DEADLINE):
        while word not in (line := await content.readline()):
            assert line, f"the stream ended without {word!r}"
        return line


async def test_a_stream_sees_its_place_fall_and_then_its_tokens(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    await fleet.hold()
    endless = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)
    ahead = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_num_requests(1, "queued")
    async with streamed(fleet, "/api/v1/generate", plain_cases()[0].body) as content:
        first = json.loads(await line_with(content, b'"waiting"'))
        assert (first["position"], first["for"], first["seconds_left"]) == (2, "slot", None)
        url = f"{fleet.management}/api/v1/requests/{first['id']}"
        async with fleet.http.get(url) as response:
            seen = await response.json()
        assert (seen["position"], seen["for"], seen["state"]) == (2, "slot", "queued")

        ahead.cancel()
        second = json.loads(await line_with(content, b'"waiting"'))
        assert second["position"] == 1
        endless.cancel()
        await fleet.let_go()
        rest = [json.loads(line) async for line in content]
    events = [event for event in rest if event["event"] != "waiting"]
    assert "".join(event["text"] for event in events[:-1]) == plain_cases()[0].answer
    assert events[-1]["event"] == "done"


async def test_a_wait_that_is_too_long_has_a_status_until_headers_are_early(fleet: Fleet) -> None:
    await fleet.start_balancer(early_headers=3, buffered_request_timeout=2)
    await fleet.start_agent(slots=1, context_size=LONG_CONTEXT)
    await fleet.hold()
    endless = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)

    async def refused(path: str, **headers: str) -> tuple[int, bytes]:
        body = {"messages": plain_cases()[0].body["messages"], "stream": True}
        url = f"{fleet.inference}{path}"
        async with fleet.http.post(url, json=body, headers=headers) as response:
            return response.status, await response.read()

    answers = await asyncio.gather(
        refused("/api/v1/generate"),
        refused("/v1/chat/completions"),
        refused("/api/v1/generate", Prefer="wait=1"),
        refused("/v1/chat/completions", Prefer="wait=1"),
    )
    endless.cancel()
    await fleet.let_go()
    assert [status for status, _ in answers] == [504, 504, 200, 200]
    assert all(b"queue_timeout" in body for _, body in answers)


async def test_clients_of_other_apis_wait_for_a_model_that_is_on_its_way(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent(model=None, slots=None, context_size=None)
    case = plain_cases()[0]
    body = {"model": "demo", "messages": case.body["messages"], "temperature": 0}
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow(path: str, last: bytes, **more: object) -> None:
        async with streamed(fleet, path, body | {"stream": True} | more) as content:
            await heard.put(await line_with(content, b": waiting"))
            await line_with(content, last)

    async with (
        openai.AsyncOpenAI(
            timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key="none", max_retries=0
        ) as official,
        asyncio.TaskGroup() as tasks,
    ):
        answer = tasks.create_task(_said(official, body))
        tasks.create_task(follow("/v1/chat/completions", b"[DONE]"))
        tasks.create_task(follow("/v1/messages", b"message_stop", max_tokens=500))
        for _ in range(2):
            assert b"for=model" in await heard.get()
        models = [{"name": "demo", "source": MODEL.absolute().as_uri(), "slots": 2}]
        url = f"{fleet.management}/api/v1/desired-state"
        async with fleet.http.put(url, json={"models": models}) as response:
            assert response.status == 200
    assert answer.result() == case.answer


async def _said(client: openai.AsyncOpenAI, body: dict[str, Any]) -> str:
    stream = await client.chat.completions.create(**body, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
