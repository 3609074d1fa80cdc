"""Connections of a port: limits on their number, and timeouts.

aiohttp's own server waits an hour for a request's header, and without limit for a client to read
its answer. Here a connection is closed when

- its header is not complete within `header_timeout`, counted from the connection's start and from
  the first byte of each further request;
- it was idle for `IDLE_TIME`;
- a write makes no progress for `write_timeout`; the client's request is then cancelled.

Beyond `max_connections` a new client is answered 503 and disconnected. But if another address has
more connections than the client's address, the oldest idle connection of the other address is
closed instead. Malformed HTTP is answered 400 and logged on one line, without a traceback.

Received bytes are parsed in parts, one part in each turn of the event loop; until all are parsed,
the socket is not read. Bodies are never decompressed. If a request is answered before its body is
complete, the connection is closed after the answer.

With TLS a connection counts from its first byte on, and the handshake must end within
`header_timeout`, too.
"""

import asyncio
import logging
import resource
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import HttpVersion11, WSCloseCode, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from pydantic_core import to_json

from ....shared.errors import InvalidRequest, Overloaded, RequestError, public_body
from ....shared.log import context
from ...fleet.caller import Caller
from ...fleet.shares import Shares
from ...tls.tls_protocol import TlsProtocol, TlsTransport
from .defaults import HEADER_TIMEOUT, MAX_CONNECTIONS, WRITE_TIMEOUT
from .doors import Doors
from .http import error_response
from .once_per import OncePer
from .patience import PatientTransport
from .web_socket_bytes import FrameBytes, FrameFault, TooManyFrames

IDLE_TIME = 75.0
"""Seconds. Proxies keep idle connections for a minute, and the proxy should close first."""

LINGER = 2.0
"""Seconds for which the unread rest of a body is discarded, so that its client reads the answer.

If the connection were cut at once, the client would often see a broken connection instead.
"""

FAILURE_INTERVAL = 1.0
"""Seconds between two log lines about failed handshakes, which anybody can cause."""


def _raw_answer(status: bytes, error: RequestError) -> bytes:
    """Return an answer as bytes, for a connection without a parsed request."""
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

# ---- malformed HTTP


LOG_INTERVAL = 1.0
"""Seconds between two log lines about malformed HTTP, which anybody can send at any rate."""

LONGEST_REASON = 200
"""Maximum characters of a reason, since reasons quote what was sent."""

MalformedHttp = HttpProcessingError | RequestPayloadError
"""aiohttp's exceptions for malformed HTTP in a header, and in a body."""

logger = logging.getLogger(__name__)


class MalformedRequests:
    """Logs the malformed requests of one port, a limited number of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = clock()
        self._num_unlogged = 0

    def log(self, peer: str, error: MalformedHttp) -> None:
        """Log that `peer` sent malformed HTTP, or count it for the next line."""
        now = self._clock()
        if now < self._quiet_until:
            self._num_unlogged += 1
            return
        logger.info(
            "a client sent malformed HTTP: %s",
            reason_of(error),
            extra=context(peer=peer, not_logged_before=self._num_unlogged or None),
        )
        self._quiet_until = now + LOG_INTERVAL
        self._num_unlogged = 0


def as_invalid_request(error: MalformedHttp) -> InvalidRequest:
    """Return the error that the client gets."""
    return InvalidRequest(f"this is not valid HTTP: {reason_of(error)}")


def reason_of(error: MalformedHttp) -> str:
    """Return the reason of an error, on one line."""
    source = error.__cause__ if isinstance(error, RequestPayloadError) else error
    message = source.message if isinstance(source, HttpProcessingError) else str(error)
    return " ".join(message.split())[:LONGEST_REASON]


# ---- the limits of a port


class Connections:
    """The connections of one port and their common limits. Times are in seconds."""

    def __init__(
        self,
        *,
        header_timeout: float = HEADER_TIMEOUT,
        write_timeout: float = WRITE_TIMEOUT,
        max_connections: int = MAX_CONNECTIONS,
        tls: Callable[[], ssl.SSLContext] | None = None,
        doors: Doors | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the limits. `tls` gives the context for a new connection; without it the port is
        plain.
        """
        self.header_timeout = header_timeout
        self.write_timeout = write_timeout
        self.num_open = 0
        self.num_flooded = 0
        """The number of WebSockets that were closed because of too many nearly empty frames."""
        self.malformed = MalformedRequests()
        self.tls = tls
        self._doors = doors
        self._clock = clock
        self.handshakes = set[TlsProtocol]()
        self._max_connections = max_connections
        self.shares: Shares[str] = Shares(max_connections)
        """The served connections by address; for IPv6 by network."""
        self._served: dict[str, dict[_Connection, None]] = {}
        self._failures = OncePer(FAILURE_INTERVAL, max_keys=1)
        self._floods = OncePer(FAILURE_INTERVAL, max_keys=1)

    def flooded(self, peer: str, reason: str) -> None:
        """Count a WebSocket that is closed for a flood of frames.

        It is logged unless another one was logged a short while ago.
        """
        self.num_flooded += 1
        if self._floods.allows("any", self._clock()):
            about = context(peer=peer, in_all=self.num_flooded)
            logger.warning("the WebSocket of a client is closed: %s", reason, extra=about)

    def now(self) -> float:
        """Return the time on the clock of the limits."""
        return self._clock()

    def handshake_failed(self, peer: str, reason: str) -> None:
        """Report a failed TLS handshake, unless too many were reported a short while ago."""
        if self._doors is not None:
            kind = "certificate" if "certificate" in reason.lower() else "handshake"
            self._doors.refused("tls", kind, peer, f"a TLS handshake failed: {reason}")
        elif self._failures.allows("any", self._clock()):
            logger.info("a TLS handshake failed: %s", reason, extra=context(peer=peer))

    def serves(self, connection: "_Connection", address: str) -> None:
        """Count a connection as served, in the share of its address."""
        self._served.setdefault(address, {})[connection] = None
        self.shares.take(address, 1)

    def served(self, connection: "_Connection", address: str) -> None:
        """Stop counting a connection that was closed."""
        of_it = self._served[address]
        del of_it[connection]
        if not of_it:
            del self._served[address]
        self.shares.give_back(address, 1)

    def makes_room(self, address: str) -> bool:
        """Close an idle connection of the address with most connections, if `address` has fewer.

        Returns whether a connection was closed. A connection that is refused is counted.
        """
        largest = self.shares.largest()
        if largest is not None and self.shares.held(largest) > self.shares.held(address) + 1:
            idle = next((each for each in self._served[largest] if each.is_idle), None)
            if idle is not None:
                self.shares.num_refused["evicted"] += 1
                idle.force_close()
                return True
        self.shares.num_refused["full"] += 1
        return False

    @property
    def are_too_many(self) -> bool:
        """Return whether the newest connection is over the limit."""
        return self.num_open > self._max_connections

    @property
    def are_far_too_many(self) -> bool:
        """Return whether there are so many connections that the newest is closed without an
        answer.
        """
        return self.num_open > 2 * self._max_connections


class ConnectionsRunner(web.AppRunner):
    """Runs an app on connections that obey the limits of `connections`."""

    # aiohttp's runners have slots; this one has one more.
    __slots__ = ("_connections",)

    def __init__(
        self, app: web.Application, connections: Connections, *, shutdown_timeout: float
    ) -> None:
        app.on_response_prepare.append(_close_in_time)
        # A disconnect must cancel the handler: that frees its slot.
        super().__init__(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=shutdown_timeout
        )
        self._connections = connections

    async def cleanup(self) -> None:
        """Clean up as aiohttp does. Also close handshakes, which aiohttp does not know."""
        for handshake in list(self._connections.handshakes):
            handshake.abort()
        await super().cleanup()

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._connections)


class _Server(web.Server):
    def __init__(self, server: web.Server, connections: Connections) -> None:
        def request_of(message: Any, body: Any, protocol: Any, *more: Any) -> web.BaseRequest:
            if isinstance(protocol, _Connection):
                protocol.begins(message, body)
            return server.request_factory(message, body, protocol, *more)

        super().__init__(
            server.request_handler,
            request_factory=request_of,
            handler_cancellation=server.handler_cancellation,
        )
        self._limits = connections

    def __call__(self) -> web.RequestHandler:
        self._limits.num_open += 1
        # The event loop takes any protocol; only aiohttp's types say otherwise.
        return cast("web.RequestHandler", self._protocol())

    def _protocol(self) -> asyncio.Protocol:
        limits = self._limits
        if limits.tls is None:
            return self._above_tls()
        if limits.are_far_too_many:
            return _Refusal(limits)
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
            return _Newcomer(self, self._limits)
        return _Connection(self, self._limits)

    def _shaken(self, handshake: TlsProtocol) -> asyncio.Protocol:
        self._limits.handshakes.remove(handshake)
        return self._above_tls()

    def _lost(self, handshake: TlsProtocol) -> None:
        self._limits.handshakes.remove(handshake)
        self._limits.num_open -= 1


async def _close_in_time(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after an answer that is given before the request's body is complete.

    The connection is also closed after any answer to HTTP/1.0, in which persistent connections are
    a faulty extension.
    """
    if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return
    if not request.content.is_eof() or request.version < HttpVersion11:
        response.force_close()
        response.headers[hdrs.CONNECTION] = "close"


def watch_frames(
    request: web.Request,
    *,
    on_fault: Callable[[str, WSCloseCode], None],
    count: Callable[[int], bool] = lambda _num_bytes: True,
) -> bool:
    """Limit the frames of a WebSocket; call this before the socket is prepared.

    `on_fault` is called with a reason and a close code if the peer does not mask its frames, or
    sends too many tiny frames. `count` is called with further bytes of messages and returns
    whether they are allowed. Bytes that arrive after a fault are discarded. Returns false if this
    connection cannot be watched.
    """
    if not isinstance(request.protocol, _Connection):
        return False
    request.protocol.count, request.protocol.on_fault = count, on_fault
    return True


# ---- open files


SPARE_FILES = 64
"""Open files in addition to connections: listening sockets, logs, files of the interpreter."""


def raise_file_limit(num_connections: int) -> int:
    """Raise the limit of open files as far as permitted, because every connection is an open file.

    Logs a warning if the limit is still too low. Returns the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < needed:
        logger.warning(
            "the process may open %d files, but %d connections need %d: raise the limit "
            "(`ulimit -n`, or LimitNOFILE= of systemd), or lower --max-connections",
            *(soft, num_connections, needed),
        )
    return soft


# ---- how much of what arrived is read in one turn of the event loop


BYTES_AT_ONCE = 64 * 1024
"""Maximum bytes that are parsed in one turn.

A read of the socket brings up to 256 KiB. As HTTP headers, chunks of one byte or empty frames
these take tenths of a second to parse, during which nothing else runs.
"""

LINES_AT_ONCE = 512
"""Maximum lines of HTTP in one turn: each header is one line, each chunk of a body two."""

_NEWLINE = b"\n"


def end_of_http(data: bytes, start: int) -> int:
    """Return the end of the part of `data` from `start` to parse at once."""
    end = min(len(data), start + BYTES_AT_ONCE)
    num_lines = data.count(_NEWLINE, start, end)
    while num_lines > LINES_AT_ONCE:
        half = (start + end) // 2
        end, num_lines = half, data.count(_NEWLINE, start, half)
    return end


def end_of_bytes(data: bytes, start: int) -> int:
    """Return the end of the part to parse at once in a body of known length, or in frames.

    Frames are counted elsewhere.
    """
    return min(len(data), start + BYTES_AT_ONCE)


# ---- one connection


class _PausableTransport:
    """A transport that knows whether the protocol above it has paused reading.

    `resume` is called in place of the transport's `resume_reading`. All other calls go to the
    transport. The attributes that writes need are looked up once (see `PatientTransport`).
    """

    __slots__ = ("_resume", "_transport", "get_extra_info", "is_closing", "is_paused", "write")

    def __init__(self, transport: asyncio.Transport, resume: Callable[[], None]) -> None:
        self._transport = transport
        self._resume = resume
        self.is_paused = False
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        """Pause reading."""
        self.is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading after `pause_reading`.

        Reading may resume later than the call.
        """
        self.is_paused = False
        self._resume()


class _FrameParser:
    """aiohttp's parser of frames. Until `opened` it only stores received bytes."""

    __slots__ = ("_kept", "_parser")

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._kept: bytes | None = b""

    def opened(self) -> bytes:
        """Begin to parse. Returns the stored bytes, which are still to be parsed."""
        kept, self._kept = self._kept or b"", None
        return kept

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take received bytes, as aiohttp's parser does."""
        if self._kept is None:
            fed: tuple[bool, bytes] = self._parser.feed_data(data)
            return fed
        self._kept += data
        return False, b""

    def feed_eof(self) -> None:
        """Take the end of the stream, as aiohttp's parser does."""
        self._parser.feed_eof()


class _Connection(web.RequestHandler):
    """One connection. It uses two private names of aiohttp.

    `_upgraded` says whether the client asked for a WebSocket. `_messages` are the complete requests
    that are not handled yet.
    """

    __slots__ = (
        *("_frames", "_header_timer", "_is_busy", "_is_cut", "_limits", "_newest", "_patient"),
        *(
            "_above",
            "_address",
            "_reading",
            "_rest",
            "_start",
            "_turn",
            "count",
            "on_fault",
        ),
    )

    def __init__(self, server: web.Server, limits: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_TIME,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
            lingering_time=LINGER,
        )
        self._limits = limits
        self._address: str | None = None
        """The address in whose share the connection counts while it is open."""
        self._header_timer: asyncio.Handle | None = None
        self._patient: PatientTransport | None = None
        self._above: asyncio.Transport | None = None
        """The transport to read from and write to: the socket, or TLS over it."""
        self._reading: _PausableTransport | None = None
        self._rest = b""
        """The received bytes; bytes from `_start` on are parsed at the next `_turn`."""
        self._start = 0
        self._turn: asyncio.Handle | None = None
        self._frames: FrameBytes | None = None
        """Measures the frames, if this is a WebSocket."""
        self._newest: Any = None
        """The newest request, even if it has ended, in aiohttp's form: message and body."""
        self._is_busy = False
        """Whether a request is handled."""
        self._is_cut = False
        """Whether received bytes are discarded."""
        self.count: Callable[[int], bool] = lambda _num_bytes: True
        self.on_fault: Callable[[str, WSCloseCode], None] = lambda *_why: self.close()

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Set the parser as aiohttp does, but pass the first frames in turns, too."""
        frames = _FrameParser(parser)
        super().set_parser(cast("Any", frames), data_received_cb)
        self._keep(frames.opened() + self._rest[self._start :])
        self._frames = FrameBytes()
        self._expect_turn()

    def begins(self, message: Any, body: Any) -> None:
        """Prepare to handle a request."""
        self._newest = message, body
        self._is_busy = True
        self._stop_waiting()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, TlsTransport):
            # What leaves is what TLS makes of the bytes written here.
            self._patient = self._patience_with(transport.tcp)
            transport.tcp = cast("asyncio.Transport", self._patient)
            self._above = transport
        else:
            self._patient = self._patience_with(cast("asyncio.Transport", transport))
            self._above = cast("asyncio.Transport", self._patient)
        self._reading = _PausableTransport(self._above, self._resume)
        super().connection_made(cast("asyncio.Transport", self._reading))
        self._address = address_of(transport)
        self._limits.serves(self, self._address)
        self._await_header()

    def _patience_with(self, tcp: asyncio.Transport) -> PatientTransport:
        return PatientTransport(tcp, patience=self._limits.write_timeout, on_cut=self._on_cut)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, one part in each turn of the event loop.

        aiohttp calls this without data to let its parser continue.
        """
        if self._is_cut:
            return
        if not data:
            self._parse(data)
        elif self._rest:
            self._keep(self._rest[self._start :] + data)
        else:
            self._keep(data)
            self._take_turn()

    def resume_reading(self, *args: Any, **kw: Any) -> None:
        """Resume as aiohttp does, which calls this twice for a body, even if reading was not
        paused.
        """
        if self._reading is not None and self._reading.is_paused:
            super().resume_reading(*args, **kw)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limits.num_open -= 1
        if self._address is not None:
            self._limits.served(self, self._address)
            self._address = None
        self._stop_waiting()
        self._cut()
        if self._patient is not None:
            self._patient.stop_watching()
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Finish as aiohttp does, then parse the bytes that waited for a possible WebSocket."""
        finished = await super().finish_response(request, resp, start_time)
        self._is_busy = False
        self._expect_turn()
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Handle errors as aiohttp does, but do not report malformed HTTP as a server error."""
        if not isinstance(exc, MalformedHttp) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        self._limits.malformed.log(self._peer(), exc)
        response = error_response(as_invalid_request(exc))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log as aiohttp does, unless a body proved malformed after the answer had begun."""
        if isinstance(error := kw.get("exc_info"), MalformedHttp):
            self._limits.malformed.log(self._peer(), error)
        else:
            super().log_exception(*args, **kw)

    # ---- turns

    def _keep(self, data: bytes) -> None:
        self._rest, self._start = data, 0

    def _cut(self) -> None:
        self._is_cut = True
        self._keep(b"")

    def _take_turn(self) -> None:
        """Parse the next part. The socket is not read until all parts are parsed."""
        self._turn = None
        if not self._may_parse:
            return
        try:
            part = self._next_part()
        except FrameFault as error:
            self._cut()
            code = WSCloseCode.PROTOCOL_ERROR
            if isinstance(error, TooManyFrames):
                self._limits.flooded(self._peer(), str(error))
                code = WSCloseCode.POLICY_VIOLATION
            self.on_fault(str(error), code)
            self._resume()  # to notice that the peer is gone
            return
        self._parse(part)
        if self._rest:
            self._pause()
            self._expect_turn()
        elif self._may_parse:
            self._resume()

    def _next_part(self) -> bytes:
        """Return the next part to parse. Raises `FrameFault`."""
        rest, start = self._rest, self._start
        if self._frames is None:
            end = (end_of_bytes if self._is_in_plain_body else end_of_http)(rest, start)
        else:
            now = self._limits.now()
            end, num_bytes = self._frames.take(rest, start, end_of_bytes(rest, start), now)
            if not self.count(num_bytes):
                self._cut()
                return b""
        if end == len(rest):
            self._keep(b"")
        else:
            self._start = end
        return rest[start:end]

    @property
    def _may_parse(self) -> bool:
        """Return whether aiohttp can take more bytes and the parser for them is known."""
        is_held = self._reading is None or self._reading.is_paused
        return not is_held and not (self._upgraded and self._frames is None)

    def _expect_turn(self) -> None:
        if self._rest and self._turn is None and self._may_parse:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _pause(self) -> None:
        if self._above is not None and not self._above.is_closing():
            self._above.pause_reading()

    def _resume(self) -> None:
        """Read from the socket again, once all received bytes are parsed."""
        if self._rest:
            self._expect_turn()
        elif self._above is not None and not self._above.is_closing():
            self._above.resume_reading()

    @property
    def _is_in_plain_body(self) -> bool:
        """Return whether a body of known length is arriving, in which line ends cost nothing."""
        if self._newest is None:
            return False
        message, body = self._newest
        return not body.is_eof() and not message.chunked

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if not self._messages and self._is_between_requests:
            self._await_header()

    # ---- time for a header

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a request, or for the rest of its header."""
        is_open = self._patient is not None and not self._patient.is_closing()
        return is_open and (self._header_timer is not None or self._is_between_requests)

    @property
    def _is_between_requests(self) -> bool:
        """Return whether the next bytes belong to the header of a request."""
        if self._is_busy:
            return False
        return self._newest is None or self._newest[1].is_eof()

    def _await_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = asyncio.get_running_loop().call_later(
                self._limits.header_timeout, self._on_no_header
            )

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _on_no_header(self) -> None:
        """Close the connection, unless a header that came at the last moment begins a request."""
        self._header_timer = asyncio.get_running_loop().call_soon(self._close_late)

    def _close_late(self) -> None:
        self._header_timer = None
        self.force_close()

    def _on_cut(self) -> None:
        logger.warning(
            "the connection of a client is cut: the client read nothing for %g s",
            self._limits.write_timeout,
            extra=context(peer=self._peer()),
        )

    def _peer(self) -> str:
        name = None if self._patient is None else self._patient.get_extra_info("peername")
        return str(name[0]) if name else "unknown"


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer's address; for IPv6 its network, which one host may have as a whole."""
    name = transport.get_extra_info("peername")
    address = str(name[0]) if isinstance(name, tuple) and name else None
    return Caller(address=address).account.address or "unknown"


class _Newcomer(asyncio.Protocol):
    """A connection over the limit.

    The connection is served if another connection is closed for it; otherwise it is refused.
    """

    def __init__(self, server: web.Server, limits: Connections) -> None:
        self._server = server
        self._limits = limits
        self._inner: asyncio.Protocol = _Refusal(limits)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._limits.makes_room(address_of(transport)):
            self._inner = cast("asyncio.Protocol", _Connection(self._server, self._limits))
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


class _Refusal(asyncio.Protocol):
    """A refused connection over the limit. It gets an error once it sends a request.

    If it sends no request, it is closed soon.
    """

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
