"""Request bodies: read within limits, and parsed without blocking the event loop.

A body is limited in bytes, in JSON values (`json_size`) and in time: the pause between two pieces
and the total. A large body has to grow by much in that pause.

The bytes of all bodies that are being read or parsed are limited together, including messages on
WebSockets. Callers share that pool fairly (`fleet/shares.py`). If keys are needed, all callers
without a key share a small part, and may send only short bodies.

Parsing a large body takes up to a few tenths of a second, so it is done on a separate thread. The
parser holds the GIL while it builds or validates one list, so the event loop is delayed, but it
still runs between those steps.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Protocol, Self, TypeVar

from aiohttp import StreamReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from ....shared.errors import InvalidRequest, Overloaded, RequestTooLarge
from ....shared.json_size import JsonCounter
from ...fleet.caller import STRANGERS, Account, Caller
from ...fleet.footprint import OF_NUMBER, OF_OBJECT, RETRY_AFTER, memory_refusal
from ...fleet.shares import Holding, Shares
from .callers import caller_of, check_authority
from .fault_reports import RefusalReport

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a request body; a longer body is refused before it is parsed."""

BODY_SILENCE = 30.0
"""Maximum pause within a body, in seconds."""

BODY_TIME = 300.0
"""Maximum seconds for a whole body: the longest body at half a megabit a second."""

LEAST_GROWTH = 16
"""A pause ends once a body has grown by this share (a sixteenth) of its received bytes.

A body that arrives steadily enough to end in `BODY_TIME` always grows faster. A body that brought
megabytes and then drips is ended after `BODY_SILENCE`.
"""

MAX_HELD_BYTES = 16 * MAX_BODY_BYTES
"""Maximum bytes of bodies and messages being read or parsed at once, on all connections."""

STRANGERS_PART = 16
"""The share (a sixteenth) of these bytes for all callers without a key together."""

MAX_STRANGERS_BODY = 4096
"""Maximum bytes of a body from a caller without a key, which needs only to send a key."""

LARGE_BYTES = 128 * 1024
"""From this size on, parsing takes longer than the handover to a thread."""

T = TypeVar("T")

Hold = Callable[[int], None]
"""Counts further bytes that are held for a body; raises `Overloaded`."""


class OffLoop(Protocol):
    """Return the result of `parse`, which runs on the parser's thread if `num_bytes` is large."""

    async def __call__(self, num_bytes: int, parse: Callable[[], T], /) -> T: ...


class Filler(Protocol):
    """Replaces references in a body by their targets, before the body is parsed."""

    async def fill(self, body: bytes, hold: Hold, off_loop: OffLoop) -> bytes:
        """Return the body without references. Raises `RequestError`."""


class Bodies:
    """The bodies that are being read and parsed. A context manager: leaving it closes it."""

    def __init__(
        self,
        *,
        silence: float = BODY_SILENCE,
        whole: float = BODY_TIME,
        max_held_bytes: int = MAX_HELD_BYTES,
        filler: Filler | None = None,
        has_keys: Callable[[], bool] = lambda: False,
        memory: Shares[Account] | None = None,
    ) -> None:
        """Make the pool. `silence` and `whole` are the maximum seconds of a pause and a body.

        `has_keys` says whether callers need keys. `memory` is the memory of parsed requests: if
        none is left for a body, the body is refused before it is parsed.
        """
        self.shares: Shares[Account] = Shares(
            max_held_bytes, caps={STRANGERS: max_held_bytes // STRANGERS_PART}
        )
        self._filler = filler
        self._silence = silence
        self._whole = whole
        self._has_keys = has_keys
        self._memory = memory
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parser")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def num_bytes(self) -> int:
        """The bytes of all bodies and messages that are being read or parsed."""
        return self.shares.total

    async def parsed(self, request: web.Request, parse: Callable[[bytes], T]) -> T:
        """Return the body, parsed by `parse`.

        Raises the errors of `parse`, `InvalidRequest`, `RequestTooLarge` and `Overloaded`.
        """
        _check_content_type(request)
        with self.held(caller_of(request)) as held:
            held.check_length(request.content_length or 0)
            self._check_memory(request, request.content_length or 0)
            body = await self._read(request, held)
            if IDEMPOTENCY_KEY in request.headers:
                digest = await self.off_loop(len(body), lambda: sha256(body).digest())
                request[body_digest_key] = digest
            whole = await self.filled(body, held)
            return await self.off_loop(len(whole), lambda: parse(whole))

    async def filled(self, body: bytes, held: "Held") -> bytes:
        """Return `body` with its references replaced, if that is turned on.

        Raises `RequestError`.
        """
        if self._filler is None:
            return body
        return await self._filler.fill(body, held.add, self.off_loop)

    async def off_loop(self, num_bytes: int, parse: Callable[[], T]) -> T:
        """Return the result of `parse`, which runs on the parser's thread if `num_bytes` is large.

        Bodies are parsed one after the other: the next begins once the event loop has taken this
        result. Otherwise results would pile up, and they take several times the memory of their
        bodies.
        """
        if num_bytes < LARGE_BYTES:
            return parse()
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._thread, parse)

    def _check_memory(self, request: web.Request, num_bytes: int) -> None:
        """Check that memory is left for the parsed body.

        Raises `Overloaded` or `RequestTooLarge`.
        """
        if self._memory is None or num_bytes < LARGE_BYTES:
            return
        error = memory_refusal(self._memory, caller_of(request).account, num_bytes)
        if error is not None:
            raise error

    async def _read(self, request: web.Request, held: "Held") -> bytes:
        content = request.content
        body = _BodyRead(held)
        try:
            if content.is_eof():  # small ones come with their header: there is nothing to wait for
                body.add(content.read_nowait())
            else:
                await self._await_pieces(content, body)
        except TimeoutError as error:
            raise InvalidRequest(self._too_slow()) from error
        except (RequestPayloadError, HttpProcessingError) as error:
            raise InvalidRequest("the body ended early or is malformed") from error
        self._check_memory(request, body.parsed_bytes)
        return bytes(body.data)

    async def _await_pieces(self, content: StreamReader, body: "_BodyRead") -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._whole
        enough = 0
        async with asyncio.timeout(min(self._silence, self._whole)) as patience:
            async for piece in content.iter_any():
                body.add(piece)
                if len(body.data) >= enough:
                    enough = len(body.data) + len(body.data) // LEAST_GROWTH
                    patience.reschedule(min(loop.time() + self._silence, end))

    def _too_slow(self) -> str:
        return (
            f"the body did not arrive in time: it must be complete within {self._whole:g} "
            f"s, and in every {self._silence:g} s it must grow by 1/{LEAST_GROWTH}"
        )

    def held(self, caller: Caller) -> "Held":
        """Return a context in which bytes of a caller's bodies or messages are counted."""
        return Held(self.shares, self.holder_of(caller))

    def holder_of(self, caller: Caller) -> Account:
        """Return the account whose share a caller uses."""
        return caller.holder(has_keys=self._has_keys())


IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header of requests that may be sent again and are answered once."""

body_digest_key = web.RequestKey("body_digest_key", bytes)
"""Request key for the SHA-256 of the body of a request with an idempotency key."""


class _BodyRead:
    """The received part of a body. Raises `Overloaded`, `RequestTooLarge` and `InvalidRequest`."""

    def __init__(self, held: "Held") -> None:
        self.data = bytearray()
        self._held = held
        self._counter = JsonCounter()

    @property
    def parsed_bytes(self) -> int:
        """The estimated bytes of the parsed values, hardly more than they really take."""
        counter = self._counter
        num_plain = counter.num_values - counter.num_strings - counter.num_containers
        return len(self.data) + OF_NUMBER * max(0, num_plain) + OF_OBJECT * counter.num_containers

    def add(self, piece: bytes) -> None:
        """Add a received piece."""
        self._held.add(len(piece))
        self.data += piece
        self._held.check_length(len(self.data))
        self._counter.add(piece)


class Held(Holding[Account]):
    """The counted bytes of one body, or of one socket's messages, until the context is left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.give_back()

    def add(self, num_bytes: int) -> None:
        """Count further bytes. Raises `Overloaded` if the holder's share is used up."""
        if not self.claim(num_bytes):
            raise Overloaded(
                "too many bodies are being read at once, from all callers or from this "
                "caller; try again in a moment",
                retry_after=RETRY_AFTER,
            )

    def check_length(self, num_bytes: int) -> None:
        """Check the length of a body.

        Raises `RequestTooLarge` if the holder may not send a body of this length.
        """
        most = MAX_STRANGERS_BODY if self._holder == STRANGERS else MAX_BODY_BYTES
        if num_bytes > most:
            raise body_too_large(most)


BODIES = web.AppKey("BODIES", Bodies)
"""App key of the `Bodies` that the app's routes use."""

ONLY_JSON = web.AppKey("ONLY_JSON", bool)
"""App key of a port that accepts JSON under no content type which browsers send unasked."""


async def parsed(request: web.Request, parse: Callable[[bytes], T]) -> T:
    """Return the body of `request`, parsed by `parse`; see `Bodies.parsed`. Refusals are reported.

    Raises `Unauthorized` if the request's key has ended in the meantime.
    """
    with RefusalReport(request):
        found = await request.app[BODIES].parsed(request, parse)
        check_authority(request)
        return found


def body_too_large(most: int = MAX_BODY_BYTES) -> RequestTooLarge:
    """Return the error for a body or message that exceeds the limit."""
    return RequestTooLarge(f"the body must have at most {most} bytes")


_JSON_TYPES = frozenset({"application/json", "application/octet-stream"})
"""Content types that browsers send to another origin only after a preflight."""

_SIMPLE_TYPES = frozenset({"application/x-www-form-urlencoded", "text/plain"})
"""Content types that browsers send to any origin; some programs use them for JSON."""


def _check_content_type(request: web.Request) -> None:
    """Refuse content types that browsers send to other origins unasked.

    A browser always sends `Origin` or `Sec-Fetch-Site` with a body. So a request without both
    comes from a program, which may omit the type or send one that browsers send unasked. The body
    is JSON, whatever its type.
    """
    is_browsers = hdrs.ORIGIN in request.headers or "Sec-Fetch-Site" in request.headers
    if hdrs.CONTENT_TYPE not in request.headers:
        if is_browsers:
            raise InvalidRequest("the Content-Type is missing; it must be application/json")
        return
    # aiohttp takes what it cannot read for an octet stream.
    given = request.headers[hdrs.CONTENT_TYPE]
    kind = request.content_type if request.content_type in given.lower() else given
    is_misnamed = kind in _SIMPLE_TYPES and not is_browsers and ONLY_JSON not in request.app
    if kind in _JSON_TYPES or is_misnamed:
        return
    raise InvalidRequest(f"the Content-Type must be application/json, not {kind[:60]}")
