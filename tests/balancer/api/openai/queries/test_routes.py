import json
from typing import Any

from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.queries import Embedded, Ranked, Result, Score, Vector
from tests.balancer.api.fake_runtime import FakeFleetRuntime


def answers(query_request: QueryRequest) -> tuple[Result, ...]:
    if query_request.kind == "rank":
        return (Ranked(scores=(Score(score=0.5, num_tokens=3),)),)
    return (Embedded(vectors=(Vector(vector="AACAPw==", num_tokens=2),)),)


async def post(client: TestClient, path: str, **body: Any) -> tuple[int, Any]:
    response = await client.post(f"/v1/{path}", json=body)
    return response.status, json.loads(await response.read())


async def test_embeddings(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.answers = answers
    assert await post(client, "embeddings", input="a", model="m") == (
        200,
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}],
            "model": "m",
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        },
    )


async def test_rerank(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.answers = answers
    status, answer = await post(client, "rerank", query="q", documents=["a"], model="m")
    assert (status, answer["id"], answer["model"]) == (200, "q-0", "m")
    assert answer["results"] == [{"index": 0, "relevance_score": 0.5}]


async def test_both_are_also_where_others_have_them(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.answers = answers
    ranked = {"query": "q", "documents": ["a"]}
    for path, body in (
        ("/embeddings", {"input": "a"}),
        ("/rerank", ranked),
        ("/v2/rerank", ranked),
    ):
        response = await client.post(path, json=body)
        assert (response.status, (await response.json())["model"]) == (200, "demo")
        refused = await client.post(path, json={})
        assert (await refused.json())["error"]["type"] == "invalid_request_error"


async def test_errors_have_openais_shape(client: TestClient) -> None:
    status, answer = await post(client, "embeddings", input=7)
    assert status == 400
    assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", "input")
