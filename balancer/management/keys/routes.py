"""The routes of this room. No answer but that of making or rotating a key has a key in it."""

import time
from collections.abc import Callable, Mapping

from aiohttp import hdrs, web
from pydantic import TypeAdapter
from pydantic_core import to_json

from ....shared.errors import Conflict, NotFound, StoreUnavailable
from ...access.key_keeper import KeyKeeper
from ...access.key_spec import KeySpec, parse_spec
from ...api.access.permissions import Needs
from ...api.openapi.document import Doc, ErrorClass, json_answer
from ...api.openapi.schemas import Body
from ...api.route import Route
from ...api.transport.bodies import parsed
from .serializers import Key, Keys, NewKey, key_json, new_key_json


def routes(keeper: KeyKeeper, clock: Callable[[], float] = time.time) -> list[Route]:
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

    of_one: tuple[ErrorClass, ...] = (NotFound, Conflict, StoreUnavailable)
    list_doc = Doc(
        "Keys",
        "All access keys, without their secrets.",
        {200: json_answer("All keys, by name.", Keys)},
    )
    create_doc = Doc(
        "CreateKey",
        "Makes an access key; the answer is the only place where it ever stands.",
        {201: json_answer("The new key.", NewKey)},
        body=Body(name="KeySpec", adapter=TypeAdapter(KeySpec)),
        errors=(Conflict, StoreUnavailable),
    )
    revoke_doc = Doc(
        "RevokeKey",
        "Revokes a key; what its holder has open ends.",
        {200: json_answer("The key, revoked.", Key)},
        errors=of_one,
    )
    rotate_doc = Doc(
        "RotateKey",
        "Gives a key another secret; the old one ends as if it were revoked.",
        {200: json_answer("The key with its new secret.", NewKey)},
        errors=of_one,
    )
    path, one = "/api/v1/keys", "/api/v1/keys/{name}"
    return [
        Route("GET", path, Needs.ADMINISTER, listed, list_doc),
        Route("POST", path, Needs.ADMINISTER, create, create_doc),
        Route("DELETE", one, Needs.ADMINISTER, revoke, revoke_doc),
        Route("POST", f"{one}/rotate", Needs.ADMINISTER, rotate, rotate_doc),
    ]


def _json(body: Mapping[str, object], *, status: int = 200) -> web.Response:
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(
        body=to_json(body), status=status, content_type="application/json", headers=headers
    )
