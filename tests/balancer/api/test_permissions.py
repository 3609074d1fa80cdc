"""What each role may, spelt out for every route of both ports, on the real apps."""

import re
from typing import get_args

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.access.identity import Role
from arriero.balancer.api.app import inference_app
from arriero.balancer.api.guard import Needs, may
from arriero.balancer.api.route import ROUTES, permissions
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.routes import metrics_route
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.health import StoreHealth
from tests.balancer.access.builders import record, secret
from tests.balancer.management.apps import management_app
from tests.balancer.stores import MemoryStore

ROLES: tuple[Role, ...] = get_args(Role)
SECRETS: dict[Role, str] = {role: secret(number) for number, role in enumerate(ROLES)}
PORTS = ("inference", "management")


def apps() -> dict[str, web.Application]:
    metrics = Metrics()
    runtime = FleetRuntime(Fleet(Limits(max_buffered_requests=0)), recorder=metrics)
    access = Access(record(role, number, role) for number, role in enumerate(ROLES))
    desired_state = DesiredStateService(runtime, MemoryStore(), StoreHealth("the store"))
    hub = EventHub(runtime)
    hub.close()  # so that no stream of events goes on for ever
    return {
        "inference": inference_app(runtime, access=access, more_routes=[metrics_route(metrics)]),
        "management": management_app(
            runtime, hub, metrics, desired_state=desired_state, access=access
        ),
    }


def routes(app: web.Application) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


@pytest.mark.parametrize("port", PORTS)
async def test_what_is_served_was_declared_with_what_it_needs(port: str) -> None:
    """A route that an app was given in another way is refused to everybody."""
    app = apps()[port]
    assert routes(app) == permissions(app[ROUTES]).keys()


def test_roles_are_as_the_documents_say() -> None:
    """`docs/access.md` says these in words."""
    opened = {role: {needs for needs in Needs if may(role, needs)} for role in ROLES}
    call = {Needs.ANY, Needs.LIST, Needs.CALL, Needs.FIRST_FRAME, Needs.NOTHING}
    see = {Needs.ANY, Needs.LIST, Needs.VIEW, Needs.NOTHING}
    assert opened == {
        "inference": call,
        "viewer": see,
        "operator": call | see | {Needs.OPERATE},
        "admin": call | see | {Needs.OPERATE, Needs.ADMINISTER},
        "agent": {Needs.JOIN, Needs.NOTHING},
    }


@pytest.mark.parametrize("port", PORTS)
async def test_every_role_at_every_route(port: str) -> None:
    """401 without a key, 403 with one of the wrong role; neither with the right one."""
    app = apps()[port]
    async with TestClient(TestServer(app)) as client:
        for (method, path), needs in permissions(app[ROUTES]).items():
            if (method, path) == ("DELETE", "/api/v1/keys/{name}"):
                path = "/api/v1/keys/nobody"  # so that every key stays
            # Who is logged in is told without a key, but a key that is shown has to see the fleet.
            shown = Needs.VIEW if (method, path) == ("GET", "/api/v1/session") else needs
            for role in (None, *ROLES):
                status = await ask(client, method, path, role)
                place = f"{role} at {method} {path}: {status}"
                if role is None:
                    assert (status == 401) == (needs is not Needs.NOTHING), place
                else:
                    assert status != 401, place
                    assert (status == 403) == (not may(role, shown)), place


async def ask(client: TestClient, method: str, path: str, role: Role | None) -> int:
    headers = {"Authorization": f"Bearer {SECRETS[role]}"} if role else {}
    url = re.sub(r"\{\w+\}", "nothing", path)
    body = {"data": b"[", "headers": headers | {"Content-Type": "application/json"}}
    async with client.request(
        method, url, **(body if method in ("POST", "PUT") else {"headers": headers})
    ) as answer:
        return answer.status


async def test_what_needs_no_key_is_only_this() -> None:
    made = apps()
    assert paths_that_need(Needs.NOTHING, made["inference"]) == {"/health", "/ready", "/ping"}
    free = {"/health", "/", "/dashboard/{name}", "/api/v1/session"}
    assert paths_that_need(Needs.NOTHING, made["management"]) == free


def paths_that_need(needs: Needs, app: web.Application) -> set[str]:
    return {route.template for route in app[ROUTES] if route.needs is needs}


async def test_what_changes_something_needs_more_than_to_see_it() -> None:
    changing = {
        route.needs
        for route in apps()["management"][ROUTES]
        if route.method != "GET" and not route.template.endswith(("/session", "/generate"))
    }
    assert changing == {Needs.OPERATE, Needs.ADMINISTER}


async def test_what_makes_models_work_needs_a_caller() -> None:
    working = {
        route.template: route.needs
        for route in apps()["inference"][ROUTES]
        if route.method == "POST" and route.needs is not Needs.CALL
    }
    nothing = {"/ping": Needs.NOTHING, "/v1/responses/compact": Needs.ANY}
    assert working == {"/api/show": Needs.LIST, **nothing}


async def test_keys_are_for_administrators() -> None:
    app = apps()["management"]
    keys = {"/api/v1/keys", "/api/v1/keys/{name}", "/api/v1/keys/{name}/rotate"}
    assert keys < paths_that_need(Needs.ADMINISTER, app)
