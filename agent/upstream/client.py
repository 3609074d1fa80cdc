"""HTTP to one upstream server: bounded answers, no redirects, the key in one header only."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from math import isfinite
from pathlib import Path
from typing import Any, Self

import aiohttp

from ..outgoing_proxy import proxy_for
from .protocol.address import ApiAddress
from .protocol.failures import UpstreamFault, UpstreamLost, UpstreamRefusal

logger = logging.getLogger(__name__)

CONNECT = 5.0
SILENCE = 300.0
"""Maximum seconds of silence within an answer; balancers give up far earlier."""

KEPT_OPEN = 2.0
"""Seconds for which an idle TLS connection is kept, shorter than any server keeps it."""

MAX_ERROR = 2**16
MAX_DOCUMENT = 2**26
"""Maximum bytes of a refusal, and of an answer that is not streamed."""

LONGEST_KEY = 4096


class KeyFileError(Exception):
    """The key cannot be read; the message names the file, never its content."""


class Client:
    """An HTTP client; use it with `async with`.

    Raises `UpstreamLost`, `UpstreamRefusal` or `UpstreamFault`.
    """

    def __init__(self, address: ApiAddress, key_file: Path | None = None) -> None:
        self.address = address
        self._key_file = key_file
        self._headers: dict[str, str] = {}
        self._proxy = proxy_for(address.root)
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT, sock_read=SILENCE),
        )
        return self

    def _connector(self) -> aiohttp.TCPConnector:
        """Return a connector. Without TLS the connector opens a connection for each request.

        Some servers close idle connections without notice.
        """
        if self.address.root.startswith("http:"):
            return aiohttp.TCPConnector(limit=0, force_close=True)
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_OPEN)

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def read_key(self) -> None:
        """Read the key from its file. Raises `KeyFileError`."""
        if self._key_file is not None:
            loop = asyncio.get_running_loop()
            key = await loop.run_in_executor(None, _key_in, self._key_file)
            self._headers = {"Authorization": f"Bearer {key}"}

    async def get(self, url: str, *, within: float) -> bytes:
        """GET `url`; return the whole answer, which must arrive within `within` seconds."""
        return await self._whole("GET", url, None, within)

    async def post(self, url: str, body: Any, *, within: float) -> bytes:
        """POST a JSON body; return the whole answer, which must arrive within `within` seconds."""
        return await self._whole("POST", url, body, within)

    async def _whole(self, method: str, url: str, body: Any, within: float) -> bytes:
        try:
            async with asyncio.timeout(within), self._open(method, url, body) as response:
                return await _read(response, MAX_DOCUMENT)
        except TimeoutError as error:
            message = f"it did not answer within {within:g} s"
            raise UpstreamLost(message, is_certain=False) from error

    @asynccontextmanager
    async def stream(self, url: str, body: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """POST, and yield the answer's bytes as they arrive.

        Leaving the block closes the connection, which cancels the answer.
        """
        async with self._open("POST", url, body) as response:
            try:
                yield response.content.iter_any()
            finally:
                if not response.content.at_eof():
                    response.close()

    @asynccontextmanager
    async def _open(
        self, method: str, url: str, body: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(
                method,
                url,
                json=body,
                headers=self._headers,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                if response.status != 200:
                    words = await _read(response, MAX_ERROR)
                    pause = _retry_after(response.headers.get("Retry-After"), time.time())
                    raise UpstreamRefusal(response.status, self._without_key(words), pause)
                yield response
        except aiohttp.ClientPayloadError as error:
            raise UpstreamLost("it cut off its answer", is_certain=False) from error
        except (aiohttp.ClientError, OSError) as error:
            is_certain = isinstance(error, aiohttp.ClientConnectorError)
            raise UpstreamLost(_reason(error), is_certain=is_certain) from error

    def _without_key(self, words: bytes) -> bytes:
        """Remove the key from a server's words, since a server may repeat it."""
        key = self._headers.get("Authorization", "").removeprefix("Bearer ")
        return words.replace(key.encode(), b"(key)") if key else words


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the whole answer, or only the beginning of a refusal.

    Raises `UpstreamFault` if an answer is longer than `most` bytes.
    """
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            if response.status != 200:
                break
            raise UpstreamFault(f"its answer is longer than {most} bytes")
    return b"".join(pieces)


def _retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds in the header, or until the date in it; `now` is in seconds since 1970."""
    try:
        return max(0.0, float(header)) if header and isfinite(float(header)) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header or "").timestamp() - now)
    except ValueError:
        return None


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"it cannot be reached: {os.strerror(number) if number else error.os_error}"
    return f"the connection broke ({type(error).__name__})"


def _key_in(file: Path) -> str:
    try:
        key = file.read_text()[: LONGEST_KEY + 1].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise KeyFileError(f"--upstream-key-file: cannot read {file}: {reason}") from error
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise KeyFileError(f"--upstream-key-file: {file} must contain one key on one line")
    return key
