"""Serves a precomputed OpenAPI document."""

from aiohttp import web

PATH = "/openapi.json"


def openapi_routes(document: bytes) -> list[web.RouteDef]:
    """`GET /openapi.json`, over a port whose document is `document`."""

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=document, content_type="application/json")

    return [web.get(PATH, serve)]
