"""The parts that all HTTP APIs share: answers with errors, and checks of origins."""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.typedefs import Middleware

from ....shared.errors import (
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    QueueFull,
    RequestError,
    UnsupportedEncoding,
    public_body,
    status_of,
)
from .fault_reports import RefusalReport, report_refusal, route_of
from .hosts import AllowedHosts
from .streaming import REQUEST_ID

QUEUE_FULL_RETRY_AFTER = 1.0
"""Default seconds that a client is asked to wait when the queue was full."""

QUEUE_POSITION = "X-Queue-Position"
"""The header with the place that a refused request would have had in the queue."""

request_id_key = web.RequestKey("request_id_key", str)
"""Request key of the id of an accepted request, so that an error response has the id, too."""

ACTING = web.AppKey("ACTING", frozenset[str])
"""App key of the paths, as templates, whose `GET` causes work at agents."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ErrorBody = Callable[[RequestError], Mapping[str, object]]
"""Builds an API's error body."""
ErrorAnswer = Callable[[RequestError], web.Response]
"""Builds an API's error response."""

_log = logging.getLogger(__name__)


def native_error(error: RequestError) -> dict[str, object]:
    """Return `{"error": {"code", "message", "retryable"}}`, with `field` if one field is wrong."""
    return {"error": public_body(error)}


def error_response(
    error: RequestError, body: ErrorBody = native_error, *, status: int | None = None
) -> web.Response:
    """Return `error` as a response with the body that `body` returns.

    `status` replaces the error's status.
    """
    response = web.json_response(body(error), status=status or status_of(error))
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    seconds = error.retry_after
    if seconds is None and isinstance(error, QueueFull):
        seconds = QUEUE_FULL_RETRY_AFTER
    if isinstance(error, QueueFull) and error.position is not None:
        response.headers[QUEUE_POSITION] = str(error.position)
    if seconds is not None:
        response.headers[hdrs.RETRY_AFTER] = str(max(1, math.ceil(seconds)))
    if error.status == HTTPStatus.UNAUTHORIZED:
        response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="arriero"'
    if not error.retryable:
        # OpenAI's clients retry every 5xx unless told not to.
        response.headers["X-Should-Retry"] = "false"
    return response


def nothing_at(path: str) -> RequestError:
    """Return the error for a path that does not exist."""
    return NotFound(f"there is nothing at {path[:200]}")


def middleware(
    answer_for: Callable[[web.Request], ErrorAnswer] = lambda _request: error_response,
    hosts: AllowedHosts | None = None,
    absent: Callable[[str], RequestError] = nothing_at,
) -> Middleware:
    """Return the middleware of a port: it refuses other hosts and encodings, and answers errors.

    `answer_for` gives the error format for a request, `hosts` the allowed hosts, and `absent` the
    error for a path that does not exist.
    """
    allowed = AllowedHosts() if hosts is None else hosts

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            with RefusalReport(request):
                _check_host(request, allowed)
                # Browsers send no key with the question, so no later middleware is asked.
                is_asked = _is_preflight(request) and allowed.admits(request.headers[hdrs.ORIGIN])
                if not is_asked:
                    _check_transfer(request)
            return _preflight_answer(request) if is_asked else await handler(request)
        except RequestError as error:
            response = answer_for(request)(error)
            if request_id_key in request:
                response.headers[REQUEST_ID] = request[request_id_key]
            error.forget_frames()
            return response
        except web.HTTPMethodNotAllowed as refusal:
            allowed_methods = ", ".join(sorted(refusal.allowed_methods))
            message = f"{request.path[:200]} takes {allowed_methods}, not {request.method[:20]}"
            no_method = MethodNotAllowed(message)
            report_refusal(request, no_method)
            response = answer_for(request)(no_method)
            response.headers[hdrs.ALLOW] = allowed_methods
            return response
        except web.HTTPNotFound:
            missing = absent(request.path)
            report_refusal(request, missing)
            return answer_for(request)(missing)
        except web.HTTPException:
            raise
        except ConnectionError:
            if request.transport is None or request.transport.is_closing():
                return web.Response()  # it reaches nobody, and aiohttp logs no error
            raise
        except Exception:
            _log.exception("unexpected error in %s %s", request.method, request.path)
            if request.writer.output_size:
                # Too late for a status: aiohttp cuts the connection, so that the client sees
                # that the answer is not whole.
                raise
            mistake = InternalError("internal error; the balancer's log has the details")
            return answer_for(request)(mistake)

    return answer


def _check_host(request: web.Request, hosts: AllowedHosts) -> None:
    """Check the host and the origin of a request. Raises `ForbiddenHost` or `Forbidden`."""
    headers = request.headers
    named = headers.getall(hdrs.HOST, [])
    hosts.check(named, headers.getall(hdrs.ORIGIN, []), over_tls=request.secure)
    if not request.raw_path.startswith(("/", "*")):
        hosts.check_target(request.url.raw_authority)  # the target's own, which counts
    if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
        acts = route_of(request) in request.app.get(ACTING, ())
        hosts.check_fetch(headers, acts=acts, over_tls=request.secure)


def _check_transfer(request: web.Request) -> None:
    """Refuse compressed bodies, which may become a thousand times larger."""
    headers = request.headers
    if headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() != "identity":
        raise UnsupportedEncoding("send the body as it is, without `Content-Encoding`")
    if request.version < HttpVersion11 and hdrs.TRANSFER_ENCODING in headers:
        raise InvalidRequest("HTTP/1.0 has no `Transfer-Encoding`")


def _is_preflight(request: web.Request) -> bool:
    if request.method != hdrs.METH_OPTIONS:
        return False
    return hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers and hdrs.ORIGIN in request.headers


PREFLIGHT_AGE = 600
"""Seconds for which browsers remember that pages of an origin may use a path."""

_METHODS = "GET, HEAD, POST, DELETE"
_HEADER_NAMES = re.compile(r"[\w!#$%&'*+.^`|~-]+(?: *, *[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
_LONGEST_NAMES = 4096


def _preflight_answer(request: web.Request) -> web.Response:
    """Return the headers that a page of an allowed origin may send: any header, for SDKs' own."""
    response = web.Response(status=HTTPStatus.NO_CONTENT)
    response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = _METHODS
    response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = str(PREFLIGHT_AGE)
    names = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
    if len(names) <= _LONGEST_NAMES and _HEADER_NAMES.fullmatch(names):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = names
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response


def admit_origins(
    hosts: AllowedHosts,
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a handler for `on_response_prepare` that lets pages of allowed origins read answers.

    Cookies are never used, so a page must send a key or count as anonymous.
    """

    async def admit(request: web.Request, response: web.StreamResponse) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None or not hosts.admits(origin):
            return
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)

    return admit
