"""Replaces links to pictures in a body by the pictures, before its API parses it.

The code behind the APIs therefore sees no links: it routes, keeps, moves and counts the pictures.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ....shared.errors import InvalidRequest, RequestTooLarge
from ..transport.bodies import Hold, OffLoop
from .fetching import LinkError

Kind = Literal["png", "jpeg", "gif", "webp"]

_LEADS_ON = ("requests", "messages", "input", "content", "output", "system")
"""Members that have messages or their parts."""

MAX_DEPTH = 8
"""Maximum depth of parts within parts that are searched for links."""

_BEGINNINGS: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A link: `url` is at `field` of a body, in the member `key` of `holder`."""

    url: str
    field: str
    holder: dict[str, Any]
    key: str

    def fill(self, kind: Kind, base64: str) -> None:
        """Replace the link by a picture, in the API's form for pictures in a body."""
        if self.key == "source":
            data = {"type": "base64", "media_type": f"image/{kind}", "data": base64}
            self.holder[self.key] = data
        else:
            self.holder[self.key] = f"data:image/{kind};base64,{base64}"


def may_have_links(body: bytes) -> bool:
    """Return whether the body may have links."""
    return b"image" in body and b"http" in body.lower()


def links(document: object) -> list[Link]:
    """Return the links to pictures in a parsed JSON body, in their order."""
    return [*_links(document, "", MAX_DEPTH)]


def kind_of(data: bytes) -> Kind | None:
    """Return the kind of picture in a file, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for begin, kind in _BEGINNINGS if data.startswith(begin)), None)


def _links(value: object, prefix: str, depth: int) -> Iterator[Link]:
    """Yield the links in `value`, and in the objects of its lists; fields in it begin with
    `prefix`.
    """
    if not isinstance(value, dict) or not depth:
        return
    if (link := _link(value, prefix)) is not None:
        yield link
    for key in _LEADS_ON:
        if isinstance(inner := value.get(key), list):
            for number, each in enumerate(inner):
                yield from _links(each, f"{prefix}{key}[{number}].", depth - 1)


def _link(part: dict[str, Any], prefix: str) -> Link | None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} if _leads_out(url):
            return Link(url, f"{prefix}image_url.url", part["image_url"], "url")
        case {"type": "input_image", "image_url": str(url)} if _leads_out(url):
            return Link(url, f"{prefix}image_url", part, "image_url")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return Link(url, f"{prefix}source.url", part, "source")
        case _:
            return None


def _leads_out(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


MAX_LINKS = 16
"""Maximum different links of one body."""

ROUND_IT = 64
"""Maximum additional bytes of a body around a picture, compared with the link."""


class Fetch(Protocol):
    """Fetches one link; see `fetching.Fetcher.fetch`."""

    async def __call__(self, url: str, /) -> bytes: ...


class LinkFiller:
    """A `bodies.Filler` that fetches links. The filled body has at most `most` bytes."""

    def __init__(self, fetch: Fetch, most: int) -> None:
        self._fetch = fetch
        self._most = most

    async def fill(self, body: bytes, hold: Hold, off_loop: OffLoop) -> bytes:
        """Fill the body; see `Filler`.

        Raises `InvalidRequest` with the field, and `RequestTooLarge`.
        """
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
        """Return the fetched files by link; each link is fetched once."""
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
                raise _refusal(first, "it is not a PNG, JPEG, WebP or GIF file")
            room -= len(same) * (ROUND_IT + 4 * -(-len(data) // 3))
            if room < 0:
                raise RequestTooLarge(
                    f"`{first.field}`: with this picture the body has more than {self._most} bytes"
                )
            return data

        return dict(zip(uses, await _all(map(fetch, uses)), strict=True))


async def _all(awaited: Iterable[Awaitable[bytes]]) -> list[bytes]:
    """Return the results; the first error cancels the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read(body: bytes) -> tuple[object, list[Link]]:
    """Read the body and find its links.

    A body that is not JSON has no links; its API reports the fault.
    """
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
        raise _refusal(
            found[-1],
            (f"the request has {num_links} links to pictures; at most {MAX_LINKS} are allowed"),
        )


def _refusal(link: Link, why: str) -> InvalidRequest:
    return InvalidRequest(f"`{link.field}`: {why}", field=link.field)
