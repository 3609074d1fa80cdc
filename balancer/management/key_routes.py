"""The routes of access keys, `/api/v1/keys`. No answer has a digest.

Only the answers to creating and rotating a key contain the key itself.
"""

import time
from collections.abc import Callable
from functools import partial

from aiohttp import web
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ...shared.errors import Conflict, NotFound, StoreUnavailable
from ...shared.inference import Count
from ..access.access_key import AccessKey
from ..access.identity import PriorityClass, Role
from ..access.key_service import KeyService
from ..access.key_spec import KeySpec, parse_spec
from ..api.common.answering import uncached_json
from ..api.guard import Needs
from ..api.openapi.document import Doc, ErrorClass, json_answer
from ..api.openapi.schemas import Body
from ..api.route import Route
from ..api.transport.bodies import parsed
from ..api.transport.callers import check_authority
from ..diary.diary import Diary
from .diary_routes import by_whom


class Key(TypedDict):
    """A key without its secret. Times are in seconds since 1970.

    A null limit means no limit. Null `models` or `labels` allow all. `last_used_at` is the time
    when this balancer last saw the key; null if the key was not used since the start.
    """

    name: str
    role: Role
    is_valid: bool
    models: list[str] | None
    labels: dict[str, str] | None
    requests_per_minute: Count | None
    tokens_per_minute: Count | None
    max_concurrent: Count | None
    max_queued: Count | None
    max_tokens: Count | None
    priority: PriorityClass
    default_priority: PriorityClass | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    rotated_at: float | None
    last_used_at: float | None


class NewKey(Key):
    """A new key. Only this answer shows `key`, which is stored nowhere."""

    key: str


class Keys(TypedDict):
    """All keys by name, including revoked and expired ones."""

    keys: list[Key]


def key_json(key: AccessKey, now: float, used_at: float | None = None) -> Key:
    """Return the fields of a key; `now` and `used_at` are in seconds since 1970."""
    limits = key.limits
    return Key(
        name=key.name,
        role=key.role,
        is_valid=key.problem(now) is None,
        models=None if limits.models is None else list(limits.models),
        labels=None if key.labels is None else dict(key.labels),
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        max_concurrent=limits.max_concurrent,
        max_queued=limits.max_queued,
        max_tokens=limits.max_tokens,
        priority=limits.priority,
        default_priority=limits.default_priority,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        rotated_at=key.rotated_at,
        last_used_at=used_at,
    )


def new_key_json(key: AccessKey, secret: str, now: float) -> NewKey:
    """Return the fields of a new key, with the key itself."""
    return NewKey(**key_json(key, now), key=secret)


def routes(
    service: KeyService, diary: Diary, clock: Callable[[], float] = time.time
) -> list[Route]:
    """Return the routes of keys."""

    async def listed(_request: web.Request) -> web.Response:
        now = clock()
        keys = [key_json(key, now, service.used_at(key)) for key in service.records()]
        return uncached_json(Keys(keys=keys))

    async def create(request: web.Request) -> web.Response:
        spec = await parsed(request, parse_spec)
        key, secret = await service.create(spec, partial(check_authority, request))
        diary.note("key_made", key.name, f"of the role {key.role}", by=by_whom(request))
        return uncached_json(new_key_json(key, secret, clock()), status=201)

    async def revoke(request: web.Request) -> web.Response:
        key = await service.revoke(request.match_info["name"], partial(check_authority, request))
        diary.note(
            "key_revoked",
            key.name,
            ("its open requests and connections were closed"),
            by=by_whom(request),
        )
        return uncached_json(key_json(key, clock(), service.used_at(key)))

    async def rotate(request: web.Request) -> web.Response:
        key, secret = await service.rotate(
            request.match_info["name"], partial(check_authority, request)
        )
        diary.note("key_rotated", key.name, "it has a new secret", by=by_whom(request))
        return uncached_json(new_key_json(key, secret, clock()))

    of_one: tuple[ErrorClass, ...] = (NotFound, Conflict, StoreUnavailable)
    list_doc = Doc(
        "Keys",
        "All access keys, without their secrets.",
        {200: json_answer("All keys, by name.", Keys)},
    )
    create_doc = Doc(
        "CreateKey",
        "Makes an access key. Only this answer contains its secret.",
        {201: json_answer("The new key.", NewKey)},
        body=Body(name="KeySpec", adapter=TypeAdapter(KeySpec)),
        errors=(Conflict, StoreUnavailable),
    )
    revoke_doc = Doc(
        "RevokeKey",
        "Revokes a key and closes the requests and connections of its holder.",
        {200: json_answer("The key, revoked.", Key)},
        errors=of_one,
    )
    rotate_doc = Doc(
        "RotateKey",
        "Gives a key a new secret; the old secret is revoked.",
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
