"""Writes answers as JSON.

Serialising many vectors would block the event loop. A list may therefore be an iterator: it is
written in pieces, and other tasks run in between.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice

from aiohttp import hdrs, web
from pydantic_core import to_json

PIECE = 32
"""List entries written between two yields to the event loop; some tens of thousands of numbers."""


def json_response(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with `body` as JSON; dataclasses in it are written as objects."""
    return web.Response(
        body=to_json(body), status=status, content_type="application/json", headers=headers
    )


def uncached_json(body: object, *, status: int = 200) -> web.Response:
    """Return `body` as JSON that no client or proxy may cache, because it changes."""
    return json_response(body, status=status, headers={hdrs.CACHE_CONTROL: "no-store"})


async def written(body: Mapping[str, object]) -> bytes:
    """Return `body` as JSON."""
    members = []
    for name, value in body.items():
        text = await _list(value) if isinstance(value, Iterator) else to_json(value)
        members.append(to_json(name) + b":" + text)
    return b"{" + b",".join(members) + b"}"


async def _list(values: Iterator[object]) -> bytes:
    pieces = []
    while piece := list(islice(values, PIECE)):
        pieces.append(to_json(piece)[1:-1])
        await asyncio.sleep(0)
    return b"[" + b",".join(pieces) + b"]"
