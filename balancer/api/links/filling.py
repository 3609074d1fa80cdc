"""Puts the pictures that a body links to into the body, before its API parses it.

So nothing behind the APIs knows of links: what is routed, kept, moved and counted is the picture.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Protocol

from ....shared.errors import InvalidRequest, RequestTooLarge
from ..transport.bodies import Hold, OffLoop
from .fetching import LinkError
from .places import Link, kind_of, links, may_have_links

MAX_LINKS = 16
"""Different links of one body."""

ROUND_IT = 64
"""Most bytes that a body has around a picture, beyond what it had around the link."""


class Fetch(Protocol):
    """Fetches one link; see `fetching.Fetcher.fetch`."""

    async def __call__(self, url: str, /) -> bytes: ...


class LinkFiller:
    """`bodies.Filler` that fetches. A body has at most `most` bytes afterwards."""

    def __init__(self, fetch: Fetch, most: int) -> None:
        self._fetch = fetch
        self._most = most

    async def fill(self, body: bytes, hold: Hold, off_loop: OffLoop) -> bytes:
        """See `Filler`. Raises `InvalidRequest`, which names the field, and `RequestTooLarge`."""
        if not may_have_links(body):
            return body
        document, found = await off_loop(len(body), lambda: _read(body))
        if not found:
            return body
        _check_few(found)
        data = await self._fetched(found, self._most - len(body), hold)
        num_bytes = len(body) + sum(map(len, data.values()))
        return await off_loop(num_bytes, lambda: _filled(document, found, data))

    async def _fetched(self, found: Sequence[Link], room: int, hold: Hold) -> dict[str, bytes]:
        """By link; what several fields link to is fetched once."""
        uses: dict[str, list[Link]] = {}
        for link in found:
            uses.setdefault(link.url, []).append(link)

        async def fetch(url: str) -> bytes:
            nonlocal room
            first, *_ = same = uses[url]
            try:
                data = await self._fetch(url)
            except LinkError as error:
                raise _refusal(first, str(error)) from error
            hold(len(data))
            if kind_of(data) is None:
                raise _refusal(first, "it is no PNG, JPEG, WebP or GIF file")
            room -= len(same) * (ROUND_IT + 4 * -(-len(data) // 3))
            if room < 0:
                raise RequestTooLarge(
                    f"`{first.field}`: with this picture the body has more than {self._most} bytes"
                )
            return data

        return dict(zip(uses, await _all(map(fetch, uses)), strict=True))


async def _all(awaited: Iterable[Awaitable[bytes]]) -> list[bytes]:
    """The results; the first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read(body: bytes) -> tuple[object, list[Link]]:
    """No links where it is no JSON: its API says what is wrong with it."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None, []
    return document, links(document)


def _filled(document: object, found: Iterable[Link], data: Mapping[str, bytes]) -> bytes:
    pictures = {url: b64encode(each).decode() for url, each in data.items()}
    for link in found:
        kind = kind_of(data[link.url])
        if kind is None:
            raise ValueError("a picture of no kind was fetched")
        link.fill(kind, pictures[link.url])
    return json.dumps(document).encode()


def _check_few(found: Sequence[Link]) -> None:
    num_links = len({link.url for link in found})
    if num_links > MAX_LINKS:
        raise _refusal(found[-1], f"{num_links} links are too many: at most {MAX_LINKS} are read")


def _refusal(link: Link, why: str) -> InvalidRequest:
    return InvalidRequest(f"`{link.field}`: {why}", field=link.field)
