"""Fetches a file from a public address, within limits.

A name is resolved once, and the connection goes to an address that was checked. So a server cannot
show a public address for the check and a private address for the connection. The same is true for
each redirect. Cookies, proxies and credentials are not used.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NoReturn

import aiohttp
from aiohttp import hdrs
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

_WITH_IPV4 = tuple(
    IPv6Network(text)
    for text in (
        *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96"),  # compatible, mapped, translated
        *("64:ff9b::/96", "64:ff9b:1::/48"),  # NAT64
        *("2001::/32", "2002::/16"),  # Teredo, 6to4
    )
)
"""IPv6 addresses that stand for IPv4 addresses, which may be private."""


def is_public(text: str) -> bool:
    """Return whether `text` is an address that anybody on the internet can reach."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    is_open = address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )
    return is_open and not _stands_for_another(address)


def _stands_for_another(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return False
    return any(address in network for network in _WITH_IPV4)


MAX_URL = 4096
_REDIRECTS = (301, 302, 303, 307, 308)
_PIECE = 2**16


class LinkError(Exception):
    """The reason why a link cannot be followed, as text for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of each link (bytes, seconds in all, redirects), and of simultaneous fetches."""

    num_bytes: int = 10 * 2**20
    seconds: float = 15.0
    redirects: int = 3
    at_once: int = 8


class Fetcher:
    """Fetches links. A balancer has one fetcher."""

    def __init__(
        self,
        limits: FetchLimits | None = None,
        *,
        resolver: Callable[[], AbstractResolver] = aiohttp.ThreadedResolver,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> None:
        """Make a fetcher. `is_allowed` decides whether to connect to an address."""
        self._limits = limits or FetchLimits()
        self._resolver = resolver
        self._is_allowed = is_allowed
        self._permits = asyncio.Semaphore(self._limits.at_once)
        self.num_open = 0
        """Links that are being fetched, or wait for a fetch."""

    async def fetch(self, url: str) -> bytes:
        """Return the file at `url`. Raises `LinkError`.

        The time limit includes waiting for other fetches.
        """
        self.num_open += 1
        try:
            async with asyncio.timeout(self._limits.seconds), self._permits:
                return await self._follow(url)
        except TimeoutError:
            raise LinkError(f"it was not received within {self._limits.seconds:g} s") from None
        finally:
            self.num_open -= 1

    async def _follow(self, url: str) -> bytes:
        resolver = _CheckedResolver(self._resolver(), self._is_allowed)
        connector = aiohttp.TCPConnector(
            resolver=resolver, use_dns_cache=False, force_close=True, limit=1
        )
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        ) as session:
            try:
                return await self._redirected(session, self._checked(url))
            except (aiohttp.ClientError, OSError, ValueError) as error:
                if resolver.has_refused:
                    raise _not_public() from error
                raise LinkError("it cannot be reached") from error

    async def _redirected(self, session: aiohttp.ClientSession, url: URL) -> bytes:
        headers = {hdrs.ACCEPT: "image/*", hdrs.ACCEPT_ENCODING: "identity"}
        for _ in range(1 + self._limits.redirects):
            async with session.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status not in _REDIRECTS:
                    return await self._read(answer)
                place = answer.headers.get(hdrs.LOCATION, "")
            url = self._checked(str(url.join(URL(place))))
        raise LinkError(f"it redirects more than {self._limits.redirects} times")

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        if answer.status != HTTPStatus.OK:
            raise LinkError(f"its server answered with the status {answer.status}")
        if answer.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
            raise LinkError("its server sent it compressed")
        if (answer.content_length or 0) > self._limits.num_bytes:
            self._too_large()
        data = bytearray()
        async for piece in answer.content.iter_chunked(_PIECE):
            data += piece
            if len(data) > self._limits.num_bytes:
                self._too_large()
        return bytes(data)

    def _too_large(self) -> NoReturn:
        raise LinkError(f"it is larger than {self._limits.num_bytes} bytes")

    def _checked(self, text: str) -> URL:
        """Return `text` as a URL that may be fetched; its host's addresses are checked later."""
        if len(text) > MAX_URL:
            raise LinkError(f"it has more than {MAX_URL} characters")
        try:
            url = URL(text)
            host = url.host or ""
        except ValueError:
            raise LinkError("it is no valid address") from None
        if url.scheme not in ("http", "https") or not host:
            raise LinkError("it must begin with http:// or https:// and a host")
        if url.user is not None or url.password is not None:
            raise LinkError("it must not contain a user or a password")
        if _is_address(host) and not self._is_allowed(host):
            raise _not_public()
        return url


class _CheckedResolver(AbstractResolver):
    """Returns the addresses of a name if all of them are allowed."""

    def __init__(self, resolver: AbstractResolver, is_allowed: Callable[[str], bool]) -> None:
        self._resolver = resolver
        self._is_allowed = is_allowed
        self.has_refused = False

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve the name. Raises `OSError` if one of its addresses is not allowed."""
        found = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed(each["host"]) for each in found):
            self.has_refused = True
            raise OSError("not a public address")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _not_public() -> LinkError:
    return LinkError("it does not lead to a public address")
