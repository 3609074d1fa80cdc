"""Opens the streams of an HTTP request; with an `Idempotency-Key`, those that were opened before.

A client that lost its connection sends the same request with the same key again. It gets the same
answer from its beginning, and nothing is computed twice. See `fleet.runtime.retained_requests`.
What is not known here may be in the store, since it was asked for at another run of the balancer.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

from aiohttp import web

from ....shared.errors import InvalidRequest, NotSupported
from ....shared.inference import GenerateRequest, RequestId
from ...fleet.caller import Caller
from ...fleet.runtime.fleet_runtime import FleetRuntime, new_request_id
from ...fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from ...fleet.runtime.stream import Stream
from ..transport.bodies import IDEMPOTENCY_KEY, body_digest_key
from ..transport.callers import caller_of
from ..transport.waiting import EARLY_HEADERS, headers_after

MAX_KEY = 255
"""Characters of an idempotency key."""

RETAINED_REQUESTS = web.AppKey("RETAINED_REQUESTS", RetainedRequests)
"""App key of the requests that outlive their connection."""


class Recall(Protocol):
    """Asks the store for requests that are not known here; see `durable/request_service.py`."""

    async def __call__(self, caller: Caller, /, *, id: str = "", prefix: str = "") -> None: ...


async def no_recall(_caller: Caller, *, id: str = "", prefix: str = "") -> None:
    """A balancer without a store that lasts finds none."""


RECALL = web.AppKey("RECALL", Recall)
"""App key of what knows requests of other runs of the balancer."""


EARLY_HEADERS_KEY = web.AppKey("EARLY_HEADERS", float)
"""App key of the seconds after which a stream begins although its request still waits."""


def waits_of(request: web.Request, is_streamed: bool) -> float | None:
    """After how many seconds of waiting a client is sent its place; `None` is never."""
    early_headers = request.app.get(EARLY_HEADERS_KEY, EARLY_HEADERS)
    return headers_after(is_streamed, early_headers, request.headers.getall("Prefer", []))


class OpenStream(Protocol):
    """Opens one stream; see `FleetRuntime.open`. Under the `id`, unless it was opened before."""

    def __call__(
        self, request: GenerateRequest, id: RequestId | None = None, /, *, together: int = 1
    ) -> Stream: ...


async def opener(
    request: web.Request, runtime: FleetRuntime, *, tell_waiting: float | None
) -> OpenStream:
    """What opens the streams of `request`. Raises `InvalidRequest` for a bad idempotency key.

    `tell_waiting` as in `FleetRuntime.open`.
    """
    caller = caller_of(request)
    key = _key(request)
    if key is None:
        return partial(runtime.open, caller=caller, tell_waiting=tell_waiting)
    retained, digest = request.app[RETAINED_REQUESTS], request[body_digest_key]
    await _recall(request, key)
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
    """What opens a request that outlives its connection, with its API's `note`.

    Raises as `opener` does.
    """
    retained, caller, key = request.app[RETAINED_REQUESTS], caller_of(request), _key(request)
    if not retained.keeps_any:
        raise NotSupported("`background`: this balancer keeps no answers", field="background")

    if key is not None:
        await _recall(request, key)

    def open_retained(requested: GenerateRequest) -> RetainedRequest:
        id = new_request_id()
        name, digest = f"{request.path}#{id}", b""
        if key is not None:
            name, digest = _name(request, key, 0), request[body_digest_key]
        return retained.open(
            name, digest, requested, caller=caller, id=id, keeps_failure=True, note=note
        )

    return open_retained


async def _recall(request: web.Request, key: str) -> None:
    caller = caller_of(request)
    if not request.app[RETAINED_REQUESTS].knows(caller, _name(request, key, 0)):
        await request.app[RECALL](caller, prefix=_name(request, key))


def _name(request: web.Request, key: str, number: int | None = None) -> str:
    """The name of one of a call's requests; without its number, how all of them begin."""
    return f"{request.path}#{key}#{'' if number is None else number}"


def _key(request: web.Request) -> str | None:
    keys = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not keys:
        return None
    if len(keys) > 1 or not 1 <= len(keys[0]) <= MAX_KEY or not keys[0].isprintable():
        raise InvalidRequest(
            f"`{IDEMPOTENCY_KEY}`: give it once, with 1 to {MAX_KEY} printable characters",
            field=IDEMPOTENCY_KEY,
        )
    return keys[0]
