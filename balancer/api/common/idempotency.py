"""Idempotency keys: what a call with an `Idempotency-Key` opened before is opened again.

A client that lost its connection sends the same request with the same key again. It gets the same
answer from its beginning, and nothing is computed twice. See `fleet.runtime.retained_requests`.
What is not known here may be in the store, since it was asked for at another run of the balancer.
"""

from collections.abc import Callable
from itertools import count
from typing import Protocol

from aiohttp import web

from ....shared.errors import InvalidRequest, NotSupported
from ....shared.inference import GenerateRequest, RequestId
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import new_request_id
from ...fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from ...fleet.runtime.stream import Stream
from ..transport.bodies import IDEMPOTENCY_KEY, body_digest_key
from ..transport.callers import caller_of

MAX_KEY = 255
"""Characters of an idempotency key."""

RETAINED_REQUESTS = web.AppKey("RETAINED_REQUESTS", RetainedRequests)
"""App key of the requests that outlive their connection."""


class RestoreRetained(Protocol):
    """Asks the store for requests that are not known here; see `durable/request_service.py`."""

    async def __call__(self, caller: Caller, /, *, id: str = "", prefix: str = "") -> None: ...


async def restore_none(_caller: Caller, *, id: str = "", prefix: str = "") -> None:
    """A balancer without a store that lasts finds none."""


RESTORE_RETAINED = web.AppKey("RESTORE_RETAINED", RestoreRetained)
"""App key of what knows requests of other runs of the balancer."""


def idempotency_key(request: web.Request) -> str | None:
    """The key that came with a request, if one did. Raises `InvalidRequest` for a bad one."""
    keys = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not keys:
        return None
    if len(keys) > 1 or not 1 <= len(keys[0]) <= MAX_KEY or not keys[0].isprintable():
        raise InvalidRequest(
            f"`{IDEMPOTENCY_KEY}`: give it once, with 1 to {MAX_KEY} printable characters",
            field=IDEMPOTENCY_KEY,
        )
    return keys[0]


class OpenStream(Protocol):
    """Opens one stream; see `FleetRuntime.open`. Under the `id`, unless it was opened before."""

    def __call__(
        self, request: GenerateRequest, id: RequestId | None = None, /, *, together: int = 1
    ) -> Stream: ...


async def keyed_opener(request: web.Request, key: str, *, tell_waiting: float | None) -> OpenStream:
    """A function that opens streams of `request` under its key; see `FleetRuntime.open`."""
    caller = caller_of(request)
    retained, digest = request.app[RETAINED_REQUESTS], request[body_digest_key]
    await _restore(request, key)
    numbers = count()

    def open_retained(
        requested: GenerateRequest, id: RequestId | None = None, /, *, together: int = 1
    ) -> Stream:
        opened = retained.open(
            _name(request, key, next(numbers)),
            digest,
            requested,
            caller=caller,
            id=id,
            tell_waiting=tell_waiting,
            together=together,
        )
        return opened.attach()

    return open_retained


async def retained_opener(
    request: web.Request, note: bytes
) -> Callable[[GenerateRequest], RetainedRequest]:
    """A function that opens a request that outlives its connection, with its API's `note`.

    Raises like `idempotency_key`.
    """
    retained, caller = request.app[RETAINED_REQUESTS], caller_of(request)
    key = idempotency_key(request)
    if not retained.keeps_any:
        raise NotSupported("`background`: this balancer keeps no answers", field="background")

    if key is not None:
        await _restore(request, key)

    def open_retained(requested: GenerateRequest) -> RetainedRequest:
        id = new_request_id()
        name, digest = f"{request.path}#{id}", b""
        if key is not None:
            name, digest = _name(request, key, 0), request[body_digest_key]
        return retained.open(
            name, digest, requested, caller=caller, id=id, keeps_failure=True, note=note
        )

    return open_retained


async def _restore(request: web.Request, key: str) -> None:
    caller = caller_of(request)
    if not request.app[RETAINED_REQUESTS].knows(caller, _name(request, key, 0)):
        await request.app[RESTORE_RETAINED](caller, prefix=_name(request, key))


def _name(request: web.Request, key: str, number: int | None = None) -> str:
    """The name of one of a call's requests; without its number, how all of them begin."""
    return f"{request.path}#{key}#{'' if number is None else number}"
