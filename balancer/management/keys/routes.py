"""The routes of this room. No answer but that of making or rotating a key has a key in it."""

import time
from collections.abc import Callable, Mapping

from aiohttp import hdrs, web
from pydantic_core import to_json

from ...access.key_keeper import KeyKeeper
from ...access.key_spec import parse_spec
from ...api.transport.bodies import parsed
from .answer_types import Keys
from .serializers import key_json, new_key_json


def routes(keeper: KeyKeeper, clock: Callable[[], float] = time.time) -> list[web.RouteDef]:
    """All of this room."""

    async def listed(_request: web.Request) -> web.Response:
        now = clock()
        keys = [key_json(key, now, keeper.used_at(key)) for key in keeper.records()]
        return _json(Keys(keys=keys))

    async def create(request: web.Request) -> web.Response:
        spec = await parsed(request, parse_spec)
        key, secret = await keeper.create(spec)
        return _json(new_key_json(key, secret, clock()), status=201)

    async def revoke(request: web.Request) -> web.Response:
        key = await keeper.revoke(request.match_info["name"])
        return _json(key_json(key, clock(), keeper.used_at(key)))

    async def rotate(request: web.Request) -> web.Response:
        key, secret = await keeper.rotate(request.match_info["name"])
        return _json(new_key_json(key, secret, clock()))

    return [
        web.get("/api/v1/keys", listed),
        web.post("/api/v1/keys", create),
        web.delete("/api/v1/keys/{name}", revoke),
        web.post("/api/v1/keys/{name}/rotate", rotate),
    ]


def _json(body: Mapping[str, object], *, status: int = 200) -> web.Response:
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(
        body=to_json(body), status=status, content_type="application/json", headers=headers
    )
