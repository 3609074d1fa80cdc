"""What the dashboard is told of the balancer."""

from importlib.metadata import version

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.management.about import about_routes, unknown_ports


async def test_ports_are_asked_for_each_time() -> None:
    told: list[tuple[int | None, str | None]] = [
        unknown_ports(),
        (8061, None),
        (8061, "https://llm.example"),
    ]
    app = web.Application()
    app.add_routes(about_routes(lambda: told.pop(0)))
    async with TestClient(TestServer(app)) as client:
        answers = [await (await client.get("/api/v1/about")).json() for _ in range(3)]
    assert [(each["inference_port"], each["public_url"]) for each in answers] == [
        (None, None),
        (8061, None),
        (8061, "https://llm.example"),
    ]
    assert answers[0]["version"] == version("arriero")
