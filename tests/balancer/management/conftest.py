"""A real fleet runtime without agents' sockets, and the management port over it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.health import StoreHealth
from arriero.balancer.store.records import Persist
from tests.balancer.management.apps import management_app
from tests.balancer.stores import MemoryStore


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def runtime(metrics: Metrics) -> FleetRuntime:
    return FleetRuntime(Fleet(Limits()), recorder=metrics, clock=lambda: 0.0, watch_interval=0.0)


@pytest.fixture
def hub(runtime: FleetRuntime) -> EventHub:
    return EventHub(runtime, interval=0.01)


class ForgetfulStore(MemoryStore):
    """Saves at once, and keeps nothing."""

    @property
    def is_lasting(self) -> bool:
        return True

    async def save_desired_state(self, persist: Persist) -> None:
        """Confirm the save."""


@pytest.fixture
def desired_state(runtime: FleetRuntime) -> DesiredStateService:
    return DesiredStateService(runtime, ForgetfulStore(), StoreHealth("the store"))


@pytest.fixture
async def client(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> AsyncIterator[TestClient]:
    server = TestServer(management_app(runtime, hub, metrics, desired_state=desired_state))
    async with TestClient(server) as client:
        yield client
