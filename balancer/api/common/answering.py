"""Answers to queries, as bytes.

Serializing vectors blocks the event loop. So a list may be given as an iterator: it is written in
pieces, and other tasks run in between.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from aiohttp import web
from pydantic_core import to_json

from ....shared.queries import Result
from ...fleet.queries.query import QueryRequest
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ..transport.callers import caller_of
from ..transport.http import request_id_key
from ..transport.streaming import REQUEST_ID

PIECE = 32
"""List entries written between two yields to the event loop; some tens of thousands of numbers."""


def json_response(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """`body` as JSON; dataclasses in it are written as objects."""
    return web.Response(
        body=to_json(body), status=status, content_type="application/json", headers=headers
    )


async def answer(
    request: web.Request,
    runtime: FleetRuntime,
    query_request: QueryRequest,
    shape: Callable[[str, Sequence[Result]], Mapping[str, object]],
) -> web.Response:
    """The response to a query; `shape` gives its body from its id and the results."""
    with runtime.ask(query_request, caller=caller_of(request)) as handle:
        request[request_id_key] = handle.id
        results = await handle.results()
    body = await written(shape(handle.id, results))
    return web.Response(body=body, content_type="application/json", headers={REQUEST_ID: handle.id})


async def written(body: Mapping[str, object]) -> bytes:
    """`body` as JSON."""
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
