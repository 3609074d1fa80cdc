"""A real fleet runtime without agents' sockets, and the management port over it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.routes import management_app


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def runtime(metrics: Metrics) -> FleetRuntime:
    return FleetRuntime(Fleet(Limits()), recorder=metrics, watch_interval=0.0)


@pytest.fixture
def hub(runtime: FleetRuntime) -> EventHub:
    return EventHub(runtime, interval=0.01)


@pytest.fixture
async def client(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics
) -> AsyncIterator[TestClient]:
    server = TestServer(management_app(runtime, hub, metrics))
    async with TestClient(server) as client:
        yield client
