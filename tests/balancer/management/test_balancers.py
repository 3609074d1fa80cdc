"""The list of balancers, where there is one."""

from importlib.metadata import version

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.route import mount
from arriero.balancer.management.balancers import alone, balancer_routes


async def test_one_without_others_leads_since_its_start() -> None:
    times = iter((5.0, 9.0))
    app = web.Application()
    mount(app, balancer_routes(alone("here", "https://llm.example", lambda: next(times))))
    async with TestClient(TestServer(app)) as client, client.get("/api/v1/balancers") as response:
        assert response.headers["Cache-Control"] == "no-store"
        told = await response.json()
    assert told["balancers"] == [
        {
            "name": "here",
            "url": "https://llm.example",
            "version": version("arriero"),
            "leads": True,
            "is_here": True,
            "since": 5.0,
            "last_heartbeat": 9.0,
        }
    ]
