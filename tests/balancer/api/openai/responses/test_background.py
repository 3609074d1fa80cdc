"""Responses in the background: asked about, read again from any number, cancelled, bounded."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.openai.responses.answer import ResponseAnswer
from arriero.balancer.api.openai.responses.background import answer_of, note_of
from arriero.balancer.api.openai.responses.requests import ResponsesRequest, parse_response
from arriero.balancer.api.openai.responses.stored import Stored, stored
from arriero.balancer.fleet.retained_record import RetainedKey, RetainedRecord
from arriero.balancer.fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from arriero.shared.errors import AgentLost
from arriero.shared.inference import Begun, Failed, RequestId, Token
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.balancer.api.openai.responses.strict import checked_event, checked_response

Event = dict[str, Any]
PATH = "/v1/responses"


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime()


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


async def create(client: TestClient, **body: Any) -> Event:
    given = {"input": "hi", "background": True} | body
    async with client.post(PATH, json=given) as response:
        assert response.status == 200, await response.text()
        return dict(await response.json())


async def get(client: TestClient, id: str) -> Event:
    async with client.get(f"{PATH}/{id}") as response:
        assert response.status == 200, await response.text()
        return dict(await response.json())


async def streamed(client: TestClient, id: str, after: int | None = None) -> list[Event]:
    query = "stream=true" if after is None else f"stream=true&starting_after={after}"
    async with client.get(f"{PATH}/{id}?{query}") as response:
        assert response.status == 200, await response.text()
        return events(await response.text())


def events(text: str) -> list[Event]:
    frames = text.removesuffix("\n\n").split("\n\n")
    return [json.loads(frame.partition("data: ")[2]) for frame in frames if frame[0] != ":"]


def text_of(told: list[Event]) -> str:
    return "".join(each.get("delta", "") for each in told)


async def test_it_runs_while_nobody_is_connected(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    id = (await create(client))["id"]
    assert (await get(client, id))["status"] == "queued"
    [stream] = runtime.streams
    stream.say(Begun(3, 0), Token("one "))
    assert (await get(client, id))["status"] == "in_progress"
    stream.say(Token("two"), done())
    response = checked_response(await get(client, id))
    assert response.status == "completed" and response.background
    assert response.output_text == "one two"
    assert (await create(client, previous_response_id=id, background=True))["id"] != id


async def test_its_events_are_read_from_any_number_on(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    id = (await create(client))["id"]
    runtime.streams[0].say(Begun(3, 0), *[Token(f"{n} ") for n in range(40)], done())
    whole = await streamed(client, id)
    for event in whole:
        checked_event(event)
    assert [each["sequence_number"] for each in whole] == list(range(len(whole)))
    assert [each["type"].rpartition(".")[2] for each in whole[:3]] == [
        "created",
        "queued",
        "in_progress",
    ]
    for after in (0, 7, len(whole) - 1):
        assert await streamed(client, id, after) == whole[after + 1 :]


async def test_a_stream_that_breaks_is_picked_up_without_a_gap(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    body = {"input": "hi", "background": True, "stream": True}
    async with client.post(PATH, json=body) as response:
        await response.content.readuntil(b"\n\n")  # a comment
        first = events((await response.content.readuntil(b"\n\n")).decode())[0]
        id = first["response"]["id"]
        runtime.streams[0].say(Begun(3, 0), Token("one "))
    assert not runtime.streams[0].is_closed_early
    runtime.streams[0].say(Token("two"), done())
    rest = await streamed(client, id, first["sequence_number"])
    assert [each["sequence_number"] for each in rest] == list(range(1, len(rest) + 1))
    assert text_of(rest) == "one two"


@pytest.mark.parametrize("has_begun", [False, True])
async def test_it_is_cancelled_once(
    client: TestClient, runtime: FakeFleetRuntime, *, has_begun: bool
) -> None:
    id = (await create(client))["id"]
    if has_begun:
        runtime.streams[0].say(Begun(3, 0), Token("one"))
    for _ in range(2):
        async with client.post(f"{PATH}/{id}/cancel") as response:
            assert (await response.json())["status"] == "cancelled"
    assert runtime.streams[0].has_ended


async def test_a_failure_is_told(client: TestClient, runtime: FakeFleetRuntime) -> None:
    id = (await create(client))["id"]
    runtime.streams[0].say(Failed(AgentLost("gone")))
    response = await get(client, id)
    assert response["status"] == "failed"
    assert response["error"]["message"] == "gone"


async def test_deleting_one_that_runs_cancels_it(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    id = (await create(client))["id"]
    async with client.delete(f"{PATH}/{id}") as response:
        assert (await response.json())["deleted"]
    await runtime.until(lambda: runtime.streams[0].has_ended)
    async with client.get(f"{PATH}/{id}") as response:
        assert response.status == 404


async def test_one_that_runs_cannot_be_continued_yet(client: TestClient) -> None:
    id = (await create(client))["id"]
    body = {"input": "and", "previous_response_id": id}
    async with client.post(PATH, json=body) as response:
        assert response.status == 409
        assert (await response.json())["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize("after", ["x", "-2", "1.5", "9" * 30])
async def test_a_bad_number_is_named(client: TestClient, after: str) -> None:
    id = (await create(client))["id"]
    async with client.get(f"{PATH}/{id}?stream=true&starting_after={after}") as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "starting_after"


async def test_only_those_in_the_background_can_be_streamed_again(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.script = lambda _: [Token("one"), done()]
    id = (await create(client, background=False))["id"]
    async with client.get(f"{PATH}/{id}?stream=true") as response:
        assert response.status == 400
    async with client.post(f"{PATH}/{id}/cancel") as response:
        assert response.status == 400


def held_by(retained: RetainedRequests) -> list[object]:
    """What answers hold that are retained."""
    answers = [each.answer._answer for each in retained._retained.values()]
    return [value for answer in answers for value in vars(answer).values()]


async def test_one_that_has_ended_holds_what_it_repeats_and_not_what_was_asked(
    runtime: FakeFleetRuntime,
) -> None:
    retained, size = RetainedRequests(runtime), 2**19
    async with TestClient(TestServer(inference_app(runtime, retained=retained))) as client:
        bodies = [{"input": "x" * size, "metadata": {"n": str(n)}} for n in range(3)]
        ids = [(await create(client, **body))["id"] for body in bodies]
        assert retained.num_bytes > 3 * size
        assert any(isinstance(each, ResponsesRequest) for each in held_by(retained))
        for stream in runtime.streams:
            stream.say(Begun(3, 0), *[Token(f"{n} ") for n in range(9)], done())
        await asyncio.sleep(0)
        assert retained.num_bytes < size // 4
        assert not any(isinstance(each, ResponsesRequest) for each in held_by(retained))
        for n, id in enumerate(ids):
            response = await get(client, id)
            assert (response["status"], response["metadata"]) == ("completed", {"n": str(n)})
            told = await streamed(client, id)
            assert told[-1]["response"] == response
            assert text_of(told) == "".join(f"{n} " for n in range(9))
            async with client.get(f"{PATH}/{id}/input_items") as items:
                [item] = (await items.json())["data"]
                assert item["content"][0]["text"] == "x" * size
        retained.check_integrity()


async def test_a_forgotten_one_is_held_no_longer(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime)
    async with TestClient(TestServer(inference_app(runtime, retained=retained))) as client:
        id = (await create(client))["id"]
        held = weakref.ref(next(iter(retained._retained.values())).answer)
        runtime.streams[0].say(done())
        async with client.delete(f"{PATH}/{id}"):
            pass
        gc.collect()
        assert held() is None and not len(retained)


async def test_one_that_finds_no_room_is_refused_with_words(runtime: FakeFleetRuntime) -> None:
    retained = RetainedRequests(runtime, max_bytes=2**20)
    async with TestClient(TestServer(inference_app(runtime, retained=retained))) as client:
        for status in (200, 200, 503):
            given = {"input": "x" * 200_000, "background": True}
            async with client.post(PATH, json=given) as response:
                assert response.status == status
                answer = await response.json()
        assert "--responses-limit" in answer["error"]["message"]
        assert len(runtime.streams) == 2


# ---- what another run of the balancer needs


BODY = json.dumps({"input": "hé", "background": True, "metadata": {"a": "b"}, "top_k": 3}).encode()
RECORD = RetainedRecord(RetainedKey("ana@1", "k"), RequestId("r"), b"", created_at=12.5)


def previous() -> Stored:
    store = Conversations()
    requested = parse_response(b'{"input": "before"}')
    answer = ResponseAnswer(
        RequestId("p"),
        store,
        requested,
        None,
        served="m",
        service_tier="priority",
        created_at=1,
        owner="ana@1",
    )
    answer.begin()
    answer.take(Token("well"))
    answer.take(done())
    return stored(answer.response, requested.input, None)


@pytest.mark.parametrize("continues", [False, True])
def test_it_is_the_same(continues: bool) -> None:
    requested, before = parse_response(BODY), previous() if continues else None
    store = Conversations()
    first = ResponseAnswer(
        RECORD.id,
        store,
        requested,
        before,
        served="m",
        service_tier="priority",
        created_at=12,
        owner="ana@1",
    )
    retained = RetainedRequest(
        RECORD, lambda _, __: None, note=note_of(requested, before, "m", "priority")
    )
    other_store = Conversations()
    second = answer_of(retained, other_store)
    for event in (Token("a"), done()):
        assert first.take(event) == second.take(event)
    assert first.response == second.response
    assert first.response["service_tier"] == "priority"
    [mine, others] = [
        each.memory.find("resp_r", Stored, 0.0, owner="ana@1") for each in (store, other_store)
    ]
    assert mine == others and mine is not None
    assert len(mine.history) == (4 if continues else 2)


def test_a_note_that_is_not_readable() -> None:
    retained = RetainedRequest(RECORD, lambda _, __: None, note=b'{"later": 1}')
    with pytest.raises(ValueError, match="later"):
        answer_of(retained, Conversations())
