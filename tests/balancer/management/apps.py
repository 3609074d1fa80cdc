"""The management port of a balancer whose store is in memory."""

from typing import Any

from aiohttp import web

from arriero.balancer.access.access import Access
from arriero.balancer.access.key_keeper import KeyKeeper
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management import routes
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.drains import DrainKeeper
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl


def management_app(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    *,
    access: Access | None = None,
    **more: Any,
) -> web.Application:
    """As in `routes`, of `more` of what that takes; its store ends with it."""
    store = Store(StoreUrl("memory"))
    access = Access() if access is None else access
    parts = {"drains": DrainKeeper(runtime, store), "keys": KeyKeeper(access, store), **more}
    app = routes.management_app(runtime, hub, metrics, access=access, **parts)

    async def close(_app: web.Application) -> None:
        await store.close()

    app.on_cleanup.append(close)
    return app
