"""The OpenAPI documents as both ports serve them, for all tests that look something up in them."""

import asyncio
from functools import cache

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.app import inference_app
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.health import StoreHealth
from tests.balancer.management.apps import management_app
from tests.balancer.openapi_checks import Json
from tests.balancer.stores import MemoryStore


@cache
def inference() -> Json:
    """Not to be changed, as the other."""
    return asyncio.run(_served_by_inference())


@cache
def management() -> Json:
    return asyncio.run(_served_by_management())


async def _served_by_inference() -> Json:
    return await _served(inference_app(_runtime()))


async def _served_by_management() -> Json:
    runtime = _runtime()
    desired_state = DesiredStateService(runtime, MemoryStore(), StoreHealth("the store"))
    return await _served(
        management_app(runtime, EventHub(runtime), Metrics(), desired_state=desired_state)
    )


def _runtime() -> FleetRuntime:
    return FleetRuntime(Fleet(Limits(max_buffered_requests=0)), recorder=Metrics())


async def _served(app: web.Application) -> Json:
    async with TestClient(TestServer(app)) as client:
        response = await client.get("/openapi.json")
        document: Json = await response.json()
    return document
