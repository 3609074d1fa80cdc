"""The inference port's document: all of its routes, and nothing that is not there."""

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.document import inference_document
from tests.balancer import documents
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.openapi_checks import check_names, check_references, routes_in, routes_of

DOCUMENT = documents.inference()


def test_every_route_is_described(runtime: FakeFleetRuntime) -> None:
    assert routes_in(DOCUMENT) == routes_of(inference_app(runtime))


def test_it_is_whole() -> None:
    assert DOCUMENT["info"]["version"] == "1.2"
    check_references(DOCUMENT)
    check_names(DOCUMENT)


NO_MODELS = {"/v1/files", "/v1/batches"}
"""Paths whose bodies no agent answers."""


@pytest.mark.parametrize(("method", "path"), sorted(routes_in(DOCUMENT)))
def test_what_takes_a_body_says_how_it_is_refused(method: str, path: str) -> None:
    operation = DOCUMENT["paths"][path][method.lower()]
    assert {"403", "500"} <= operation["responses"].keys()
    if "requestBody" in operation:
        full = "529" if path.startswith("/v1/messages") else "503"
        of_models = set() if path in NO_MODELS else {"404", "504"}
        assert {"400", "413", full, *of_models} <= operation["responses"].keys()


async def test_it_is_served(client: TestClient) -> None:
    response = await client.get("/openapi.json")
    document = await response.json()
    assert document == inference_document(document["info"]["version"])


@pytest.mark.parametrize(
    ("path", "event"),
    [("/v1/responses", "ResponseStreamEvent"), ("/v1/messages", "MessageStreamEvent")],
)
def test_streams_say_what_their_events_are(path: str, event: str) -> None:
    answer = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
    item = {"$ref": f"#/components/schemas/{event}"}
    assert answer["text/event-stream"] == {"x-item-schema": item}
    assert len(DOCUMENT["components"]["schemas"][event]["anyOf"]) >= 8


def test_schemas_have_short_names() -> None:
    """pydantic writes the module into the names of types that two modules call the same."""
    assert not [name for name in DOCUMENT["components"]["schemas"] if "__" in name]
