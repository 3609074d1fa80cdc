"""What the dashboard is told of the balancer."""

from importlib.metadata import version

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.route import mount
from arriero.balancer.management.about import about_routes, unknown_ports
from arriero.shared.messages import Issue


async def test_ports_are_asked_for_each_time() -> None:
    told: list[tuple[int | None, str | None]] = [
        unknown_ports(),
        (8061, None),
        (8061, "https://llm.example"),
    ]
    app = web.Application()
    mount(app, about_routes(lambda: told.pop(0)))
    async with TestClient(TestServer(app)) as client:
        answers = [await (await client.get("/api/v1/about")).json() for _ in range(3)]
    assert [(each["inference_port"], each["public_url"]) for each in answers] == [
        (None, None),
        (8061, None),
        (8061, "https://llm.example"),
    ]
    assert answers[0]["issues"] == []
    assert answers[0]["version"] == version("arriero")


async def test_issues_of_the_balancer_itself() -> None:
    app = web.Application()
    issue = Issue(code="certificate_expires", message="soon", hint="renew it")
    mount(app, about_routes(unknown_ports, lambda: (issue,)))
    async with TestClient(TestServer(app)) as client:
        about = await (await client.get("/api/v1/about")).json()
    assert about["issues"] == [
        {"code": "certificate_expires", "message": "soon", "hint": "renew it", "adapter": None}
    ]
