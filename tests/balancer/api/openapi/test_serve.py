"""The document over HTTP."""

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.openapi.serve import openapi_routes


async def test_it_is_served_as_it_is() -> None:
    app = web.Application()
    app.add_routes(openapi_routes(b'{"openapi": "3.1.0"}'))
    async with TestClient(TestServer(app)) as client:
        response = await client.get("/openapi.json")
        assert response.content_type == "application/json"
        assert await response.read() == b'{"openapi": "3.1.0"}'
