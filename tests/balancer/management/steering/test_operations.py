from typing import Any

import jsonschema
from aiohttp.test_utils import TestClient

from arriero.balancer.management.steering.operations import OPERATIONS
from tests.balancer import documents

DOCUMENT: dict[str, Any] = documents.management()


def schema(path: str, method: str, what: str) -> dict[str, Any]:
    operation = DOCUMENT["paths"][path][method]
    place = operation["requestBody"] if what == "body" else operation["responses"][what]
    found = place["content"]["application/json"]["schema"]
    return {**found, "components": DOCUMENT["components"]}


async def test_what_is_got_is_as_described_and_may_be_put(client: TestClient) -> None:
    wish = {"models": [{"name": "m", "source": "file:///m.gguf", "sampling": {"top_k": 3}}]}
    path = "/api/v1/desired-state"
    jsonschema.validate(wish, schema(path, "put", "body"))
    await client.put(path, json=wish)
    got = await (await client.get(path)).json()
    jsonschema.validate(got, schema(path, "get", "200"))
    jsonschema.validate(got, schema(path, "put", "body"))


def test_operations_have_names_of_their_own() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names) == 6
