"""The Responses API over a fake fleet runtime."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.common.request_checks import MAX_TEXT_BYTES
from arriero.balancer.api.conversation_store import ConversationStore, E, Entry
from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.openai.responses.items import item_id
from arriero.balancer.api.openai.responses.stored import Stored
from arriero.shared.errors import (
    AgentLost,
    EngineFailed,
    PromptTooLong,
    QueueFull,
    StoreUnavailable,
)
from arriero.shared.inference import Failed, Token
from arriero.shared.queries import Counted
from tests.balancer.api.counting_runtime import CountingFleetRuntime
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo
from tests.balancer.api.openai.responses.strict import checked_event, checked_response
from tests.waiting import until


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime(echo)


@pytest.fixture
def store() -> ConversationStore:
    return ConversationStore()


@pytest.fixture
async def client(runtime: FakeFleetRuntime, store: ConversationStore) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime, Conversations(store)))) as client:
        yield client


async def create(client: TestClient, **body: Any) -> dict[str, Any]:
    async with client.post("/v1/responses", json={"input": "hi"} | body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["X-Request-Id"]
        return dict(await response.json())


async def error(client: TestClient, method: str, path: str, **given: Any) -> tuple[int, Any]:
    async with client.request(method, path, **given) as response:
        return response.status, (await response.json())["error"]


def events(text: str) -> list[dict[str, Any]]:
    told = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


async def test_an_answer_in_one_piece(client: TestClient) -> None:
    response = checked_response(await create(client))
    assert response.output_text == "you said: hi"
    assert response.model == "demo"
    assert response.status == "completed"


async def test_a_stream_ends_with_what_would_have_come_in_one_piece(client: TestClient) -> None:
    async with client.post("/v1/responses", json={"input": "hi", "stream": True}) as response:
        assert response.content_type == "text/event-stream"
        told = events(await response.text())
    for event in told:
        checked_event(event)
    streamed = told[-1]["response"]
    whole = await create(client)
    for each in (streamed, whole):
        each.pop("created_at"), each.pop("completed_at"), each.pop("id")
        each["output"][0].pop("id")
    assert streamed == whole


async def test_going_on_from_an_answer(client: TestClient, runtime: FakeFleetRuntime) -> None:
    first = await create(client, instructions="be kind")
    second = await create(client, input="and?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    asked = runtime.streams[1].request.messages or ()
    assert [(message.role, message.content) for message in asked] == [
        ("user", "hi"),
        ("assistant", "you said: hi"),
        ("user", "and?"),
    ]


def refer(id: str) -> dict[str, str]:
    return {"type": "item_reference", "id": id}


async def input_ids(client: TestClient, response: dict[str, Any]) -> list[str]:
    async with client.get(f"/v1/responses/{response['id']}/input_items?order=asc") as page:
        return [item["id"] for item in (await page.json())["data"]]


async def test_an_input_may_refer_to_items_that_were_stored(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    first = await create(client, input=[{"role": "user", "content": "hi"}])
    [question], answer = await input_ids(client, first), first["output"][0]["id"]
    turn = [{"role": "user", "content": "hi"}, refer(answer), {"role": "user", "content": "and?"}]
    second = await create(client, input=turn)
    assert await input_ids(client, second) == [
        item_id("message", second["id"][5:], "in0"),
        answer,
        item_id("message", second["id"][5:], "in2"),
    ]
    # The first answer is deleted, and still in what was stored with the second.
    await client.delete(f"/v1/responses/{first['id']}")
    more = [*turn, {"id": second["output"][0]["id"]}, {"role": "user", "content": "so?"}]
    await create(client, input=more)
    asked = runtime.streams[2].request.messages or ()
    assert [message.text for message in asked] == [
        *("hi", "you said: hi", "and?"),
        *("you said: and?", "so?"),
    ]
    again = [refer(question), {"role": "user", "content": "so?"}]
    status, told = await error(client, "POST", "/v1/responses", json={"input": again})
    assert (status, told["param"]) == (404, "input")
    assert question in told["message"]


async def test_an_item_that_comes_before_the_input_is_not_there_twice(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    first = await create(client)
    turn = [refer(first["output"][0]["id"]), {"role": "user", "content": "and?"}]
    await create(client, input=turn, previous_response_id=first["id"])
    asked = runtime.streams[1].request.messages or ()
    assert [message.text for message in asked] == ["hi", "you said: hi", "and?"]


@pytest.mark.parametrize("id", ["msg_none_0", "msg_0", "x", "", "conv_a_b", "msg__", "fc_a_b_0"])
async def test_an_item_that_is_not_stored(client: TestClient, id: str) -> None:
    status, told = await error(client, "POST", "/v1/responses", json={"input": [refer(id)]})
    assert (status, told["param"]) == (404, "input")
    assert "send the item itself" in told["message"]


async def test_an_item_of_somebody_elses_is_not_found(store: ConversationStore) -> None:
    runtime = FakeFleetRuntime(echo)
    async with TestClient(TestServer(inference_app(runtime, Conversations(store)))) as client:
        first = await create(client)
    entry = store.find(first["id"], Stored, time.monotonic())
    assert entry is not None
    store.put(first["id"], entry, time.monotonic(), owner="somebody")
    async with TestClient(TestServer(inference_app(runtime, Conversations(store)))) as client:
        body = {"input": [refer(first["output"][0]["id"])]}
        assert (await error(client, "POST", "/v1/responses", json=body))[0] == 404


async def test_what_was_streamed_is_kept_before_its_end_is_told(
    client: TestClient, store: ConversationStore
) -> None:
    async with client.post("/v1/responses", json={"input": "hi", "stream": True}) as response:
        async for line in response.content:
            if b'"type":"response.completed"' in line:
                assert len(store) == 1
                break
        else:
            raise AssertionError("it never ended")


async def test_what_is_not_to_be_kept_is_not(client: TestClient, store: ConversationStore) -> None:
    first = await create(client, store=False)
    assert len(store) == 0
    status, told = await error(
        client, "POST", "/v1/responses", json={"input": "a", "previous_response_id": first["id"]}
    )
    assert (status, told["code"], told["param"]) == (404, "not_found", "previous_response_id")


async def test_kept_answers_are_read_and_deleted(client: TestClient) -> None:
    made = await create(client)
    path = f"/v1/responses/{made['id']}"
    async with client.get(path) as response:
        assert await response.json() == made
    async with client.get(f"{path}/input_items", params={"limit": 1}) as response:
        assert [item["content"][0]["text"] for item in (await response.json())["data"]] == ["hi"]
    assert (await error(client, "POST", f"{path}/cancel"))[0] == 400
    assert (await error(client, "GET", path, params={"stream": "true"}))[1]["param"] == "stream"
    async with client.delete(path) as response:
        assert await response.json() == {"id": made["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        assert (await error(client, method, path))[0] == 404


async def test_errors_before_the_first_event_are_statuses(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.refusals.append(QueueFull("full"))
    status, told = await error(client, "POST", "/v1/responses", json={"input": "a"})
    assert (status, told["code"]) == (503, "queue_full")
    runtime.script = lambda _request: [Failed(EngineFailed("broke"))]
    for stream in (False, True):
        body = {"input": "a", "stream": stream}
        async with client.post("/v1/responses", json=body) as response:
            assert response.status == 500
            assert response.headers["X-Request-Id"] == runtime.streams[-1].id


async def test_errors_in_a_stream_are_events(
    client: TestClient, runtime: FakeFleetRuntime, store: ConversationStore
) -> None:
    runtime.script = lambda _request: [Token("a"), Failed(AgentLost("gone"))]
    async with client.post("/v1/responses", json={"input": "hi", "stream": True}) as response:
        told = events(await response.text())
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-2]["code"] == "agent_lost"
    assert len(store) == 0


async def test_an_answer_that_is_cut_off_can_be_gone_on_from(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.script = lambda _request: [Token("half"), done("length")]
    first = await create(client, max_output_tokens=1)
    assert first["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (await create(client, previous_response_id=first["id"]))["status"] == "incomplete"


async def test_a_client_that_leaves_frees_its_slot(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.script = lambda _request: [Token("a")]
    response = await client.post("/v1/responses", json={"input": "hi", "stream": True})
    await response.content.readline()
    response.close()
    await runtime.until(lambda: runtime.streams[0].is_closed_early)


async def test_fields_go_by_their_names_in_the_body(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    too_long = PromptTooLong("`messages`: 9 of 8", field="messages")
    runtime.script = lambda _request: [Failed(too_long)]
    _, told = await error(client, "POST", "/v1/responses", json={"input": "hi"})
    assert (told["param"], told["message"]) == ("input", "`input`: 9 of 8")
    assert told["code"] == "context_length_exceeded"


async def test_counting() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    async with (
        TestClient(TestServer(inference_app(runtime))) as client,
        client.post("/v1/responses/input_tokens", json={"input": "hi"}) as response,
    ):
        assert await response.json() == {"object": "response.input_tokens", "input_tokens": 7}


async def test_a_conversation_may_have_so_many_bytes(
    client: TestClient, store: ConversationStore, runtime: FakeFleetRuntime
) -> None:
    for id, num_bytes in (("fits", MAX_TEXT_BYTES - 100), ("full", MAX_TEXT_BYTES)):
        kept = Stored(response=b"{}", input=(), history=(), history_bytes=num_bytes)
        store.put(id, kept, time.monotonic())
    await create(client, previous_response_id="fits")
    body = {"input": "hi", "previous_response_id": "full"}
    status, refusal = await error(client, "POST", "/v1/responses", json=body)
    assert (status, refusal["param"]) == (413, "previous_response_id")
    assert len(runtime.streams) == 1


async def test_the_tier_that_was_used_is_told(client: TestClient) -> None:
    assert (await create(client))["service_tier"] == "default"
    assert (await create(client, service_tier="flex"))["service_tier"] == "flex"
    body = {"input": "hi", "stream": True, "service_tier": "priority"}
    async with client.post("/v1/responses", json=body) as response:
        told = events(await response.text())
    tiers = {each["response"]["service_tier"] for each in told if "response" in each}
    assert tiers == {"priority"}


class OfOthers:
    """What another balancer keeps; while `problem` is given, the store is away."""

    def __init__(self, other: ConversationStore) -> None:
        self.other = other
        self.problem: Exception | None = None
        self.ending: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None:
        """The other has its own."""

    async def written(self, id: str) -> None:
        self.ending.append(id)
        await self.may_end.wait()

    async def has(self, id: str, kind: type[Entry], owner: str | None) -> bool:
        return await self.find(id, kind, owner) is not None

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        if self.problem is not None:
            raise self.problem
        return self.other.find(id, kind, time.monotonic(), owner=owner)

    async def forget(self, id: str, kind: type[Any], owner: str | None) -> bool:
        if self.problem is not None:
            raise self.problem
        return self.other.forget(id, kind, time.monotonic(), owner=owner)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_response_ends_once_all_balancers_can_continue_it(is_streamed: bool) -> None:
    others = OfOthers(ConversationStore())
    others.may_end.clear()
    app = inference_app(FakeFleetRuntime(echo), Conversations(ConversationStore(), others))
    async with TestClient(TestServer(app)) as client:
        body = {"input": "hi", "stream": is_streamed}

        async def asked() -> bytes:
            async with client.post("/v1/responses", json=body) as response:
                return await response.read()

        asking = asyncio.create_task(asked())
        await until(lambda: others.ending)
        assert not asking.done()
        others.may_end.set()
        assert others.ending[0].encode() in await asking


async def test_a_response_that_another_balancer_kept(
    client: TestClient, store: ConversationStore
) -> None:
    first = await create(client)
    others = OfOthers(store)
    app = inference_app(FakeFleetRuntime(echo), Conversations(ConversationStore(), others))
    async with TestClient(TestServer(app)) as second:
        path = f"/v1/responses/{first['id']}"
        async with second.get(path) as response:
            assert await response.json() == first
        more = await create(second, input="and?", previous_response_id=first["id"])
        assert more["previous_response_id"] == first["id"]
        referred = [refer(first["output"][0]["id"]), {"role": "user", "content": "and?"}]
        assert (await create(second, input=referred))["output"]
        async with second.get(f"{path}/input_items") as response:
            assert len((await response.json())["data"]) == 1
        async with second.delete(path) as response:
            assert response.status == 200
        assert (await error(second, "GET", path))[0] == 404
        others.problem = StoreUnavailable("the store is away: refused")
        body = {"input": "more", "previous_response_id": "resp_x"}
        status, told = await error(second, "POST", "/v1/responses", json=body)
        assert (status, told["code"]) == (503, "store_unavailable")
        assert (await error(second, "DELETE", path))[0] == 503
    assert (await error(client, "GET", path))[0] == 404
