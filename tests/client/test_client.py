from dataclasses import fields
from json import dumps

import pytest

from arriero.client.answers import Done, Token
from arriero.client.client import Client
from arriero.client.errors import RequestFailed, Unreachable
from arriero.client.requests import GenerateOptions
from arriero.client.retries import NEVER, Retries
from arriero.shared.inference import GenerateRequest
from tests.client.fakes import FakeServer, says, writes
from tests.client.test_answers import DONE


@pytest.mark.parametrize(("slots", "wanted"), [(0, 4), (2, 4), (8, 11), (100, 126)])
async def test_somewhat_more_at_once_than_slots(
    server: FakeServer, slots: int, wanted: int
) -> None:
    async with Client(server.url, retries=NEVER) as client:
        server.will(says({"ready": True, "slots": {"total": slots, "busy": 0}}))
        assert await client.wanted_concurrency() == wanted


async def test_a_fleet_without_slots_is_not_ready(server: FakeServer) -> None:
    async with Client(server.url, retries=NEVER) as client:
        server.will(says({"ready": False, "slots": {"total": 0, "busy": 0}}, status=503))
        assert (await client.readiness())["ready"] is False
        server.will(says({"error": {"code": "forbidden_host", "message": "m"}}, status=403))
        with pytest.raises(RequestFailed, match="forbidden_host"):
            await client.readiness()


async def test_vectors_come_in_the_order_of_the_texts(server: FakeServer) -> None:
    data = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    server.will(says({"data": data}))
    async with Client(server.url, retries=NEVER) as client:
        assert await client.embed(["a", "b"], model="m") == [[1.0], [2.0]]
    assert server.seen == [("POST", "/v1/embeddings", b'{"input": ["a", "b"], "model": "m"}')]


def test_each_field_of_a_request_can_be_given() -> None:
    missing = [
        field.name
        for field in fields(GenerateRequest)
        if field.name not in GenerateOptions.__annotations__ and field.name != "stream"
    ]
    assert not missing, f"add them to `GenerateOptions`: {', '.join(missing)}"


async def test_generate_asks_for_a_whole_answer(server: FakeServer) -> None:
    server.will(says(DONE | {"text": "yes"}))
    async with Client(server.url, retries=NEVER) as client:
        assert (await client.generate(prompt="p")).text == "yes"
    assert server.seen == [("POST", "/api/v1/generate", b'{"prompt": "p", "stream": false}')]


TOKEN = dumps({"event": "token", "id": "r", "kind": "content", "text": "x"}).encode() + b"\n"
END = dumps(DONE).encode() + b"\n"
ERROR = {"code": "agent_lost", "message": "gone", "retryable": True}
FAILED = dumps({"event": "error", "id": "r", "error": ERROR}).encode() + b"\n"
NEW = b'{"event": "brand_new"}\n\n'
QUICK = Retries(limit=3, first_pause=0.001, last_pause=0.001)


async def test_events_one_after_the_other(server: FakeServer) -> None:
    server.will(writes(TOKEN[:9], TOKEN[9:] + NEW + TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        assert stream.id == "r1"
        events = [event async for event in stream]
        assert [event async for event in stream] == []
    assert [type(event) for event in events] == [Token, Token, Done]


async def test_a_stream_that_waits_is_to_say_so_soon(server: FakeServer) -> None:
    server.will(writes(TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        await stream.answer()
    assert server.headers[0]["Prefer"] == "wait=1"


async def test_a_whole_answer(server: FakeServer) -> None:
    server.will(writes(TOKEN, TOKEN, END))
    async with Client(server.url, retries=NEVER) as client, client.stream(prompt="p") as stream:
        answer = await stream.answer()
    assert (answer.id, answer.text, answer.finish_reason) == ("r1", "xx", "stop")


async def test_an_error_at_its_end_is_raised(server: FakeServer) -> None:
    server.will(writes(TOKEN, FAILED))
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        assert isinstance(await anext(stream), Token)
        with pytest.raises(RequestFailed, match="agent_lost"):
            await anext(stream)
    assert len(server.seen) == 1


@pytest.mark.parametrize("breaks", [False, True])
async def test_an_answer_without_an_end_is_none(server: FakeServer, breaks: bool) -> None:
    server.will(writes(TOKEN, breaks=breaks))
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        with pytest.raises(Unreachable):
            await stream.answer()
    assert len(server.seen) == 1


async def test_what_failed_before_it_began_is_tried_again(server: FakeServer) -> None:
    server.will(
        says({"error": ERROR}, status=503),
        writes(FAILED),
        writes(breaks=True),
        writes(TOKEN, END),
    )
    async with Client(server.url, retries=QUICK) as client, client.stream(prompt="p") as stream:
        assert len([event async for event in stream]) == 2
    assert len(server.seen) == 4
