"""Connections of a port: limits on their number, and timeouts.

aiohttp's own server waits an hour for a request's header, and for ever for a client to read its
answer. Here a connection is closed when

- no whole header comes within `header_timeout`, counted from the connection's start and from the
  first byte of each further request;
- it was idle for `IDLE_TIME`;
- a write makes no progress for `write_timeout`; the client's request is cancelled.

Beyond `max_connections` a client is answered 503 and disconnected. What is not HTTP is answered 400
(`malformed`).

With TLS a connection counts from its first byte on, and its handshake has `header_timeout` as well.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from pydantic_core import to_json

from ....shared.errors import InvalidRequest, Overloaded, RequestError, public_body
from ....shared.log import context
from ...tls.tls_protocol import TlsProtocol, TlsTransport
from .http import error_response
from .malformed import MalformedHttp, MalformedRequests, as_invalid_request
from .once_per import OncePer
from .patience import PatientTransport
from .web_socket_bytes import CountedReader, Reader

IDLE_TIME = 75.0
"""Seconds. Proxies keep idle connections for a minute; the proxy should close first."""

HEADER_TIMEOUT = 10.0
WRITE_TIMEOUT = 30.0
MAX_CONNECTIONS = 4096

FAILURE_INTERVAL = 1.0
"""Seconds between two log lines about handshakes that failed; anybody can have many fail."""


def _raw_answer(status: bytes, error: RequestError) -> bytes:
    """An answer in bytes, for where there is no request."""
    body = to_json({"error": public_body(error)})
    return (
        b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (status, len(body), body)
    )


_REFUSAL_ANSWER = _raw_answer(
    b"503 Service Unavailable\r\nRetry-After: 1",
    Overloaded("too many connections are open; try again in a moment"),
)
_PLAIN_ANSWER = _raw_answer(
    b"400 Bad Request", InvalidRequest("this port speaks TLS: use https:// (agents: wss://)")
)

logger = logging.getLogger(__name__)


class Connections:
    """The connections of one port, and the limits they have in common. Times in seconds."""

    def __init__(
        self,
        *,
        header_timeout: float = HEADER_TIMEOUT,
        write_timeout: float = WRITE_TIMEOUT,
        max_connections: int = MAX_CONNECTIONS,
        tls: Callable[[], ssl.SSLContext] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tls` gives the context for a new connection; without it the port speaks plain HTTP."""
        self.header_timeout = header_timeout
        self.write_timeout = write_timeout
        self.num_open = 0
        self.malformed = MalformedRequests()
        self.tls = tls
        self._clock = clock
        self.handshakes = set[TlsProtocol]()
        self._max_connections = max_connections
        self._failures = OncePer(FAILURE_INTERVAL, max_keys=1)

    def handshake_failed(self, peer: str, reason: str) -> None:
        """Log it, unless another one was logged a short while ago."""
        if self._failures.allows("any", self._clock()):
            logger.info("a TLS handshake failed: %s", reason, extra=context(peer=peer))

    @property
    def are_too_many(self) -> bool:
        """Whether the newest connection is over the limit."""
        return self.num_open > self._max_connections

    @property
    def are_far_too_many(self) -> bool:
        """Whether there are so many that the newest one is closed without an answer."""
        return self.num_open > 2 * self._max_connections


class ConnectionsRunner(web.AppRunner):
    """Runs an app on connections that keep to the limits of `connections`."""

    # aiohttp's runners have slots; this one has one more.
    __slots__ = ("_connections",)

    def __init__(
        self, app: web.Application, connections: Connections, *, shutdown_timeout: float
    ) -> None:
        # A disconnect must cancel the handler: that frees its slot.
        super().__init__(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=shutdown_timeout
        )
        self._connections = connections

    async def cleanup(self) -> None:
        """As aiohttp does, which knows nothing of handshakes."""
        for handshake in list(self._connections.handshakes):
            handshake.abort()
        await super().cleanup()

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._connections)


class _Server(web.Server):
    def __init__(self, server: web.Server, connections: Connections) -> None:
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
        )
        self._limits = connections

    def __call__(self) -> web.RequestHandler:
        self._limits.num_open += 1
        # The event loop takes any protocol; only aiohttp's types say otherwise.
        return cast("web.RequestHandler", self._protocol())

    def _protocol(self) -> asyncio.Protocol:
        limits = self._limits
        if limits.tls is None or limits.are_far_too_many:
            return self._above_tls()
        handshake = TlsProtocol(
            limits.tls(),
            lambda: self._shaken(handshake),
            handshake_timeout=limits.header_timeout,
            plain_answer=_PLAIN_ANSWER,
            on_failure=limits.handshake_failed,
            on_lost=lambda: self._lost(handshake),
        )
        limits.handshakes.add(handshake)
        return handshake

    def _above_tls(self) -> asyncio.Protocol:
        if self._limits.are_too_many:
            return _Refusal(self._limits)
        return _Connection(self, self._limits)

    def _shaken(self, handshake: TlsProtocol) -> asyncio.Protocol:
        self._limits.handshakes.remove(handshake)
        return self._above_tls()

    def _lost(self, handshake: TlsProtocol) -> None:
        self._limits.handshakes.remove(handshake)
        self._limits.num_open -= 1


def count_messages(request: web.Request, count: Callable[[int], bool]) -> bool:
    """Has `count` told of each further bytes of messages on what becomes a WebSocket.

    What arrives after it said no is thrown away. False: this connection cannot.
    """
    if not isinstance(request.protocol, _Connection):
        return False
    request.protocol.count = count
    return True


class _Connection(web.RequestHandler):
    __slots__ = ("_header_timer", "_limits", "_patient", "count")

    def __init__(self, server: web.Server, limits: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_TIME,
            access_log=None,  # type: ignore[arg-type]
        )
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._patient: PatientTransport | None = None
        self.count: Callable[[int], bool] | None = None

    def set_parser(
        self, parser: Reader, data_received_cb: Callable[[], None] | None = None
    ) -> None:
        """As aiohttp does; the bytes that it is fed with are counted, if that was asked for."""
        if self.count is not None:
            parser = CountedReader(parser, self.count)
        super().set_parser(cast("Any", parser), data_received_cb)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, TlsTransport):
            # What leaves is what TLS makes of the bytes written here.
            self._patient = self._patience_with(transport.tcp)
            transport.tcp = cast("asyncio.Transport", self._patient)
            super().connection_made(transport)
        else:
            self._patient = self._patience_with(cast("asyncio.Transport", transport))
            super().connection_made(cast("asyncio.Transport", self._patient))
        self._await_header()

    def _patience_with(self, tcp: asyncio.Transport) -> PatientTransport:
        return PatientTransport(tcp, patience=self._limits.write_timeout, on_cut=self._on_cut)

    def data_received(self, data: bytes) -> None:
        num_requests = self._request_count
        super().data_received(data)
        if self._request_count > num_requests:
            self._stop_waiting()
        elif self._is_between_requests:
            self._await_header()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limits.num_open -= 1
        self._stop_waiting()
        if self._patient is not None:
            self._patient.stop_watching()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """As aiohttp does, except that malformed HTTP is not reported as a server error."""
        if not isinstance(exc, MalformedHttp) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        self._limits.malformed.log(self._peer(), exc)
        response = error_response(as_invalid_request(exc))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """As aiohttp does, unless the unread rest of a body is malformed."""
        if isinstance(error := kw.get("exc_info"), MalformedHttp):
            self._limits.malformed.log(self._peer(), error)
        else:
            super().log_exception(*args, **kw)

    @property
    def _is_between_requests(self) -> bool:
        """Whether the next bytes are a request's header."""
        return self._waiter is not None and not self._waiter.done()

    def _await_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = self._loop.call_later(
                self._limits.header_timeout, self._on_no_header
            )

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _on_no_header(self) -> None:
        self._header_timer = None
        self.force_close()

    def _on_cut(self) -> None:
        logger.warning(
            "a client read nothing for %g s; its connection is cut",
            self._limits.write_timeout,
            extra=context(peer=self._peer()),
        )

    def _peer(self) -> str:
        name = None if self._patient is None else self._patient.get_extra_info("peername")
        return str(name[0]) if name else "unknown"


class _Refusal(asyncio.Protocol):
    """A connection over the limit: gets an answer once it sends a request, or is closed soon."""

    def __init__(self, limits: Connections) -> None:
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._limits.are_far_too_many:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.header_timeout, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_REFUSAL_ANSWER)
            self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limits.num_open -= 1
        if self._timer is not None:
            self._timer.cancel()
