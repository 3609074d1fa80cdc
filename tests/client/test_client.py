from dataclasses import fields

import pytest

from arriero.client.client import Client
from arriero.client.errors import RequestFailed
from arriero.client.requests import GenerateOptions
from arriero.client.retries import NEVER
from arriero.shared.inference import GenerateRequest
from tests.client.fakes import FakeServer, says
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
