"""`/v1/conversations` by OpenAI's client, and responses that belong to one."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import Failed
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime(echo)


@pytest.fixture
async def sdk(runtime: FakeFleetRuntime) -> AsyncIterator[openai.AsyncOpenAI]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        url = str(client.make_url("/v1"))
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as sdk:
            yield sdk


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items.data]


async def test_what_is_said_in_a_conversation(
    runtime: FakeFleetRuntime, sdk: openai.AsyncOpenAI
) -> None:
    system = {"type": "message", "role": "system", "content": "Be short."}
    made = await sdk.conversations.create(items=[system], metadata={"topic": "llamas"})
    assert made.id.startswith("conv_")
    for number in (1, 2):
        response = await sdk.responses.create(input=f"Hi {number}", conversation=made.id)
        assert response.conversation is not None
        assert response.conversation.id == made.id
    [_, second] = runtime.streams
    roles = [message.role for message in second.request.messages or ()]
    assert roles == ["system", "user", "assistant", "user"]
    items = await sdk.conversations.items.list(made.id, order="asc", limit=3)
    assert texts(items) == ["Be short.", "Hi 1", "you said: Hi 1"]
    assert items.has_more
    rest = await sdk.conversations.items.list(made.id, order="asc", after=items.last_id)
    assert texts(rest) == ["Hi 2", "you said: Hi 2"]


async def test_its_items_come_and_go(sdk: openai.AsyncOpenAI) -> None:
    made = await sdk.conversations.create()
    message = {"type": "message", "role": "user", "content": "Hi"}
    added = await sdk.conversations.items.create(made.id, items=[message, message])
    first, second = (item.id for item in added.data)
    assert first != second
    one = await sdk.conversations.items.retrieve(str(first), conversation_id=made.id)
    assert one == added.data[0]
    left = await sdk.conversations.items.delete(str(first), conversation_id=made.id)
    assert left.id == made.id
    with pytest.raises(openai.NotFoundError):
        await sdk.conversations.items.retrieve(str(first), conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.conversations.items.delete(str(first), conversation_id=made.id)


async def test_it_is_labelled_and_deleted(sdk: openai.AsyncOpenAI) -> None:
    made = await sdk.conversations.create(metadata={"a": "b"})
    changed = await sdk.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert await sdk.conversations.retrieve(made.id) == changed
    assert (await sdk.conversations.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError) as caught:
        await sdk.responses.create(input="Hi", conversation=made.id)
    assert caught.value.param == "conversation"


async def test_a_response_that_fails_adds_nothing(
    runtime: FakeFleetRuntime, sdk: openai.AsyncOpenAI
) -> None:
    made = await sdk.conversations.create()
    runtime.script = lambda _: [Failed(EngineFailed("broken"))]
    with pytest.raises(openai.InternalServerError):
        await sdk.responses.create(input="Hi", conversation={"id": made.id})
    assert (await sdk.conversations.items.list(made.id)).data == []


async def test_a_turn_is_kept_even_if_its_response_is_not(sdk: openai.AsyncOpenAI) -> None:
    made = await sdk.conversations.create()
    response = await sdk.responses.create(input="Hi", conversation=made.id, store=False)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(response.id)
    assert len((await sdk.conversations.items.list(made.id)).data) == 2


@pytest.mark.parametrize(
    "body", [{"previous_response_id": "resp_1"}, {"background": True}], ids=["previous", "later"]
)
async def test_what_it_cannot_be_used_with(sdk: openai.AsyncOpenAI, body: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.responses.create(input="Hi", conversation="conv_1", **body)
    assert caught.value.param == "conversation"
