"""What every HTTP door shares: reading a body, answering errors, refusing other origins."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestPayloadError

from ....shared.errors import (
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    QueueFull,
    RequestError,
    RequestTooLarge,
    public_body,
    status_of,
)
from .streaming import REQUEST_ID

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Longest request body; a longer one is refused before it is parsed."""

BODY_SILENCE = 30.0
"""Longest pause within a body, in seconds: who sends no more would hold its memory for ever."""

QUEUE_FULL_RETRY_AFTER = 1.0
"""Seconds a client is asked to wait when the queue was full and the error does not say more."""

request_id_key = web.RequestKey("request_id_key", str)
"""Where a door puts the id of an accepted request, to be told also where it ends with an error."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ErrorBody = Callable[[RequestError], Mapping[str, object]]
"""An API's own shape of an error."""
ErrorAnswer = Callable[[RequestError], web.Response]
"""An API's own answer that is an error."""

_log = logging.getLogger(__name__)


def native_error(error: RequestError) -> dict[str, object]:
    """`{"error": {"code", "message", "retryable"}}`, and `field` where one is to blame."""
    return {"error": public_body(error)}


def body_too_large() -> RequestTooLarge:
    """The error for anything a client sent that is over the limit."""
    return RequestTooLarge(f"the body may have at most {MAX_BODY_BYTES} bytes")


def error_response(
    error: RequestError, body: ErrorBody = native_error, *, status: int | None = None
) -> web.Response:
    """`error` as a response in the shape `body` gives it; `status` where an API has another."""
    response = web.json_response(body(error), status=status or status_of(error))
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    seconds = error.retry_after
    if seconds is None and isinstance(error, QueueFull):
        seconds = QUEUE_FULL_RETRY_AFTER
    if seconds is not None:
        response.headers[hdrs.RETRY_AFTER] = str(max(1, math.ceil(seconds)))
    if not error.retryable:
        # OpenAI's clients repeat every 5xx unless they are told not to.
        response.headers["X-Should-Retry"] = "false"
    return response


async def read_json_body(request: web.Request, silence: float = BODY_SILENCE) -> bytes:
    """The body, not parsed yet. Raises `InvalidRequest` and `RequestTooLarge`.

    `silence` is the longest pause within it, in seconds.
    """
    _check_content_type(request)
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise body_too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(silence) as pause:
            async for chunk in request.content.iter_any():
                pause.reschedule(asyncio.get_running_loop().time() + silence)
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise body_too_large()
    except TimeoutError as error:
        raise InvalidRequest(f"nothing came of the rest of the body for {silence:g} s") from error
    except (RequestPayloadError, HttpProcessingError) as error:
        raise InvalidRequest("the body ended early or is not encoded as it says") from error
    return bytes(body)


def _check_content_type(request: web.Request) -> None:
    """JSON must be called JSON: that keeps pages of other origins from sending it unasked.

    A browser always sends `Origin` or `Sec-Fetch-Site` with a body, so what has neither comes
    from a program, which may leave the type out.
    """
    if hdrs.CONTENT_TYPE in request.headers:
        if request.content_type != "application/json":
            raise InvalidRequest(
                f"the Content-Type must be application/json, not {request.content_type[:60]}"
            )
    elif hdrs.ORIGIN in request.headers or "Sec-Fetch-Site" in request.headers:
        raise InvalidRequest("the Content-Type is missing; it must be application/json")


def middlewares(
    answer_for: Callable[[web.Request], ErrorAnswer] = lambda _request: error_response,
) -> list[Middleware]:
    """Every door's middlewares; `answer_for` says how a request's errors are answered."""
    return [_answer_errors(answer_for), _refuse_other_origins]


def _answer_errors(answer_for: Callable[[web.Request], ErrorAnswer]) -> Middleware:
    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = answer_for(request)
        try:
            return await handler(request)
        except RequestError as error:
            response = answer(error)
            if request_id_key in request:
                response.headers[REQUEST_ID] = request[request_id_key]
            return response
        except web.HTTPMethodNotAllowed as refusal:
            allowed = ", ".join(sorted(refusal.allowed_methods))
            message = f"{request.path[:200]} takes {allowed}, not {request.method[:20]}"
            response = answer(MethodNotAllowed(message))
            response.headers[hdrs.ALLOW] = allowed
            return response
        except web.HTTPNotFound:
            return answer(NotFound(f"there is nothing at {request.path[:200]}"))
        except web.HTTPException:
            raise
        except ConnectionError:
            # The client is gone, and aiohttp knows what to do about it.
            raise
        except Exception:
            _log.exception("unexpected error in %s %s", request.method, request.path)
            if request.writer.output_size:
                # Too late for a status: aiohttp cuts the connection, so that the client sees
                # that the answer is not whole.
                raise
            return answer(InternalError("something went wrong here; the log has more"))

    return answer_errors


@web.middleware
async def _refuse_other_origins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A browser names the page's origin; only pages that came from this very host may go on.

    The scheme is left out of it, since TLS may end in front of us.
    """
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and origin.partition("://")[2].lower() != request.host.lower():
        raise Forbidden(f"pages from {origin[:100]} may not use {request.host[:100]}")
    return await handler(request)
