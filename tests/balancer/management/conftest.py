"""A real fleet runtime without agents' sockets, and the management port over it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.records import Persist, Persisted, PersistOutcome
from tests.balancer.management.apps import management_app


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def runtime(metrics: Metrics) -> FleetRuntime:
    return FleetRuntime(Fleet(Limits()), recorder=metrics, clock=lambda: 0.0, watch_interval=0.0)


@pytest.fixture
def hub(runtime: FleetRuntime) -> EventHub:
    return EventHub(runtime, interval=0.01)


@pytest.fixture
def desired_state(runtime: FleetRuntime) -> DesiredStateService:
    """Saves at once."""

    def persist(persist: Persist) -> asyncio.Future[PersistOutcome]:
        ended: asyncio.Future[PersistOutcome] = asyncio.Future()
        asyncio.get_running_loop().call_soon(ended.set_result, Persisted())
        return ended

    return DesiredStateService(runtime, persist)


@pytest.fixture
async def client(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> AsyncIterator[TestClient]:
    server = TestServer(management_app(runtime, hub, metrics, desired_state=desired_state))
    async with TestClient(server) as client:
        yield client
