"""Idempotency keys: a repeated call with the same `Idempotency-Key` gets the first call's answer.

A client that lost its connection repeats the request with the same key. It gets the same answer
from its beginning, and nothing is computed twice. See `fleet.runtime.retained_requests`. If this
balancer does not know the key, the store is asked, because another run of the balancer may have
had the call.
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
"""Maximum characters of an idempotency key."""

RETAINED_REQUESTS = web.AppKey("RETAINED_REQUESTS", RetainedRequests)
"""App key of the requests that outlive their connection."""


class RestoreRetained(Protocol):
    """Loads requests from the store that are unknown here; see `durable/request_service.py`."""

    async def __call__(self, caller: Caller, /, *, id: str = "", prefix: str = "") -> None: ...


async def restore_none(_caller: Caller, *, id: str = "", prefix: str = "") -> None:
    """Find no request, because the balancer has no store on disk."""


RESTORE_RETAINED = web.AppKey("RESTORE_RETAINED", RestoreRetained)
"""App key of the function that loads requests of other runs of the balancer."""


def idempotency_key(request: web.Request) -> str | None:
    """Return the idempotency key of a request, if it has one.

    Raises `InvalidRequest` for a bad key.
    """
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
    """Opens one stream; see `FleetRuntime.open`.

    The stream gets `id`, unless it was opened earlier.
    """

    def __call__(
        self, request: GenerateRequest, id: RequestId | None = None, /, *, together: int = 1
    ) -> Stream: ...


async def keyed_opener(request: web.Request, key: str, *, tell_waiting: float | None) -> OpenStream:
    """Return a function that opens streams of `request` under its idempotency key.

    See `FleetRuntime.open`.
    """
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
    """Return a function that opens a request that outlives its connection, with its API's `note`.

    Raises the errors of `idempotency_key`.
    """
    retained, caller = request.app[RETAINED_REQUESTS], caller_of(request)
    key = idempotency_key(request)
    if not retained.keeps_any:
        raise NotSupported(
            "`background`: this balancer stores no answers (--responses-limit 0)",
            field="background",
        )

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
    """Return the name of one request of a call.

    Without `number`, return the common beginning of all names.
    """
    return f"{request.path}#{key}#{'' if number is None else number}"
