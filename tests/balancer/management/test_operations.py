"""The management port's document: all of its routes, and the fleet as it is shown."""

from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.routes import management_app
from arriero.balancer.management.steering.keeper import DesiredStateKeeper
from arriero.shared.inference import GenerateRequest
from tests.balancer import documents
from tests.balancer.management.peers import Peer
from tests.balancer.openapi_checks import check_names, check_references, routes_in, routes_of

DOCUMENT: dict[str, Any] = documents.management()


def test_every_route_is_described(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, keeper: DesiredStateKeeper
) -> None:
    app = management_app(runtime, hub, metrics, keeper=keeper)
    assert routes_in(DOCUMENT) == routes_of(app)


def test_it_is_whole() -> None:
    assert DOCUMENT["info"]["version"] == "1.2"
    check_references(DOCUMENT)
    check_names(DOCUMENT)


@pytest.mark.parametrize(
    "path", ["/api/v1/agents", "/api/v1/agents/id-a", "/api/v1/requests", "/api/v1/models"]
)
async def test_the_fleet_is_as_described(
    client: TestClient, runtime: FleetRuntime, path: str
) -> None:
    Peer(runtime, "a")
    with runtime.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS):
        response = await client.get(path)
        described = DOCUMENT["paths"][path.replace("id-a", "{id}")]["get"]["responses"]["200"]
        schema = described["content"]["application/json"]["schema"]
        schema = schema | {"components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(schema).validate(await response.json())


async def test_it_is_served(client: TestClient) -> None:
    document = await (await client.get("/openapi.json")).json()
    assert document["paths"] == DOCUMENT["paths"]
