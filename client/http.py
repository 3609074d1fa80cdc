"""HTTP calls: JSON bodies, streams of lines, and errors as exceptions."""

import asyncio
import json
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiohttp

from ..shared.tls.contexts import ClientFiles, client_context
from ..shared.tls.key_pair import TlsFileError
from .errors import ArrieroError, Unreachable, Untrusted, failure
from .retries import Retries, is_untouched

R = TypeVar("R")

CONNECT_TIMEOUT = 10.0
MAX_LINE = 2**24
"""Maximum bytes of a line of a stream: the snapshot of a large fleet is one line."""


Tls = ssl.SSLContext | Literal[True]
"""The trusted authorities; `True` stands for the system's."""


def tls_of(ca: str | Path | None) -> Tls:
    """Return the trust in the authority of the file `ca`, or in the system's.

    Raises `ValueError`.
    """
    if ca is None:
        return True
    try:
        return client_context(ClientFiles(Path(ca)), time.time())
    except TlsFileError as error:
        raise ValueError(str(error).replace("--tls-ca", "tls_ca")) from error


class Http:
    """Calls one server over connections that are kept open."""

    def __init__(self, url: str, key: str | None, retries: Retries, tls: Tls = True) -> None:
        self.url = url.rstrip("/")
        self._tls = tls
        self.retries = retries
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session. It belongs to the event loop, so it is created at its first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                read_bufsize=MAX_LINE // 2,  # twice of it is the longest line
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> tuple[Any, Mapping[str, str]]:
        """Return the JSON of an answer, and its headers. Retried if that is safe."""

        async def once() -> tuple[Any, Mapping[str, str]]:
            async with self.open(method, path, body, headers=headers, params=params) as response:
                with reaching(self.url):
                    raw = await response.read()
                return (json.loads(raw) if raw else None), response.headers

        return await self.retried(once)

    async def retried(self, once: Callable[[], Awaitable[R]]) -> R:
        """Call `once` and return its result; repeat it after failures that a retry can help."""
        attempts = Counter[bool]()
        while True:
            try:
                return await once()
            except ArrieroError as error:
                kind = is_untouched(error)
                pause = self.retries.pause(attempts[kind], error, random.random())
                if pause is None:
                    raise
                await asyncio.sleep(pause)
                attempts[kind] += 1

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        form: aiohttp.FormData | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response with a status of success. Raises `ArrieroError`.

        `form` is sent instead of a `body`. Read the response within `reaching`.
        """
        with reaching(self.url):
            response = await self.session.request(
                method, self.url + path, json=body, data=form, headers=headers, params=params
            )
        async with response:
            if response.status >= 400:
                with reaching(self.url):
                    raise await _refusal(response)
            yield response

    @asynccontextmanager
    async def open_socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket. Raises `Unreachable`."""
        with reaching(self.url):
            connection = await self.session.ws_connect(self.url + path, max_msg_size=MAX_LINE)
        async with connection:
            yield connection


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn aiohttp's errors into `Unreachable` or `Untrusted`."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise Untrusted(f"cannot trust {url}: {_distrust(error)}") from error
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(f"cannot connect to {url}: {_why(error)}", was_sent=False) from error
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        words = str(error) or type(error).__name__
        raise Unreachable(f"the connection to {url} broke: {words}") from error


def _why(error: aiohttp.ClientConnectorError) -> str:
    """Return why a connection failed. Errors of name resolution have negative numbers."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"its host name cannot be resolved ({error.os_error.strerror or error.os_error})"
    return os.strerror(error.errno) if error.errno else str(error)


def _distrust(error: aiohttp.ClientSSLError) -> str:
    """Return why TLS failed, with advice if the certificate is the cause."""
    if not isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(getattr(error.os_error, "reason", None) or error)
    why = getattr(error.certificate_error, "verify_message", str(error.certificate_error))
    return f"{why}; --tls-ca (tls_ca=) names a file with the authority that signed its certificate"


async def _refusal(response: aiohttp.ClientResponse) -> ArrieroError:
    raw = await response.read()
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    after = response.headers.get("Retry-After", "")
    return failure(
        body,
        status=response.status,
        retry_after=float(after) if after.isdecimal() else None,
        request_id=response.headers.get("X-Request-Id"),
    )
