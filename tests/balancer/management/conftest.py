"""A real switchboard without agents' sockets, and the management port over it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.switchboard import Switchboard
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics import Metrics
from arriero.balancer.management.routes import management_app


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def switchboard(metrics: Metrics) -> Switchboard:
    return Switchboard(Fleet(Limits()), recorder=metrics, watch_interval=0.0)


@pytest.fixture
def hub(switchboard: Switchboard) -> EventHub:
    return EventHub(switchboard, interval=0.01)


@pytest.fixture
async def client(
    switchboard: Switchboard, hub: EventHub, metrics: Metrics
) -> AsyncIterator[TestClient]:
    server = TestServer(management_app(switchboard, hub, metrics))
    async with TestClient(server) as client:
        yield client
