"""`GET /api/v1/diary`: the diary; `/api/v1/hosts`: present and past hosts of the fleet."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import hdrs, web
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from ...shared.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from ...shared.models.assignments import Device
from ..api.common.answering import uncached_json
from ..api.guard import Leases, Needs
from ..api.openapi.document import AnswerDoc, Doc, json_answer, parameter
from ..api.route import Route
from ..api.transport.callers import identity_key
from ..api.transport.streaming import begin_stream
from ..diary.diary import Diary
from ..store.records import DiaryEntry, HostState, SavedHost
from .parameters import check_names, number, since

DEFAULT_LIMIT = 200
MAX_LIMIT = 1000
MAX_NUMBER = 2**53
NAMES = ("since", "limit", "last_event_id")

ALIVE_INTERVAL = 15.0
"""Seconds after which a stream without entries sends a sign of life."""


class DiaryPage(TypedDict):
    """Entries, newest first. `at` is in seconds since 1970."""

    entries: list[DiaryEntry]


class Host(TypedDict):
    """A host, with the name of its agent. The host has been in `state` since the time `since`.

    `state` is `here` if the host is connected, `drained` if an operator drained the host,
    `stopped` after an orderly stop, and `lost` after a lost connection. Times are in seconds since
    1970.
    """

    name: str
    state: HostState
    since: float
    first_seen: float
    last_seen: float
    labels: dict[str, str]
    devices: list[Device]
    cores: int
    memory: int
    platform: str
    version: str


class Hosts(TypedDict):
    """All remembered hosts, by name."""

    hosts: list[Host]


class Forgotten(TypedDict):
    """The host that was removed from the list."""

    name: str


def host_json(host: SavedHost) -> Host:
    """Return the fields of a host."""
    known: dict[str, Any] = from_json(host.document)
    return Host(
        name=host.name,
        state=host.state,
        since=round(host.since, 3),
        first_seen=round(host.first_seen, 3),
        last_seen=round(host.last_seen, 3),
        labels=known.get("labels", {}),
        devices=known.get("devices", []),
        cores=known.get("cores", 0),
        memory=known.get("memory", 0),
        platform=known.get("platform", ""),
        version=known.get("version", ""),
    )


@dataclass(frozen=True, slots=True)
class DiaryQuery:
    """A query for at most `limit` entries after the time `since`, in seconds since 1970.

    The entries have numbers above `after`.
    """

    since: float = 0.0
    limit: int = DEFAULT_LIMIT
    after: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], now: float, last_event_id: str = "") -> Self:
        """Return the query in a URL's parameters.

        Raises `InvalidRequest`, which names the parameter.
        """
        check_names(query, NAMES)
        after = last_event_id or query.get("last_event_id", "")
        return cls(
            since=since(query["since"], now) if "since" in query else 0.0,
            limit=number("limit", query.get("limit", str(DEFAULT_LIMIT)), 1, MAX_LIMIT),
            after=number("last_event_id", after, 0, MAX_NUMBER) if after else None,
        )


def by_whom(request: web.Request) -> str | None:
    """Return the name of the request's key; `None` if the request needed no key."""
    holder = request.get(identity_key)
    return None if holder is None else holder.name


def routes(diary: Diary, leases: Leases) -> list[Route]:
    """Return the routes of the diary and the hosts."""

    async def entries(request: web.Request) -> web.StreamResponse:
        is_stream = "text/event-stream" in request.headers.get(hdrs.ACCEPT, "")
        last = request.headers.get("Last-Event-ID", "") if is_stream else ""
        query = DiaryQuery.of(request.query, diary.now(), last)
        if is_stream:
            return await _follow(diary, request, query, leases)
        found = await diary.entries(since=query.since, limit=query.limit)
        return uncached_json(DiaryPage(entries=found))

    async def hosts(_request: web.Request) -> web.Response:
        return uncached_json(Hosts(hosts=[host_json(host) for host in diary.hosts()]))

    async def forget(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await diary.forget(name, by=by_whom(request))
        return uncached_json(Forgotten(name=name))

    diary_doc = Doc(
        "Diary",
        (
            "The newest entries of the diary, newest first. As server-sent events: the same "
            "entries, oldest first, followed by new entries."
        ),
        {
            200: AnswerDoc(
                "The entries; as server-sent events, an event `entry` for each, and an "
                "event `alive` during long silences.",
                {
                    "application/json": {"schema": DiaryPage},
                    "text/event-stream": {"x-item-schema": DiaryEntry},
                },
            )
        },
        parameters=(
            parameter("since", "query"),
            parameter(
                "limit",
                "query",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            ),
            parameter("Last-Event-ID", "header"),
            parameter("last_event_id", "query"),
        ),
        errors=(InvalidRequest, StoreUnavailable),
    )
    hosts_doc = Doc(
        "Hosts",
        "The hosts of the fleet, including hosts that have left.",
        {200: json_answer("All hosts that are remembered.", Hosts)},
    )
    forget_doc = Doc(
        "ForgetHost",
        "Removes a host that is not connected from the list.",
        {200: json_answer("It is forgotten.", Forgotten)},
        errors=(NotFound, Conflict, StoreUnavailable),
    )
    return [
        Route("GET", "/api/v1/diary", Needs.VIEW, entries, diary_doc, is_endless=True),
        Route("GET", "/api/v1/hosts", Needs.VIEW, hosts, hosts_doc),
        Route("DELETE", "/api/v1/hosts/{name}", Needs.OPERATE, forget, forget_doc),
    ]


async def _follow(
    diary: Diary, request: web.Request, query: DiaryQuery, leases: Leases
) -> web.StreamResponse:
    """Answer `request` with entries until the reader leaves or the reader's key ends."""
    if query.after is None:
        found = await diary.entries(since=query.since, limit=query.limit)
        found.reverse()
    else:
        found = await _following(diary, query.after)
    after = query.after or 0
    response = await begin_stream(request)
    await leases.while_here(request, _write(diary, response, found, after))
    return response


async def _write(
    diary: Diary, response: web.StreamResponse, found: list[DiaryEntry], after: int
) -> None:
    """Write the entries in `found`, and then new entries as they come."""
    while True:
        for entry in found:
            after = max(after, entry.number)
            body = to_json(entry)
            await response.write(b"id: %d\nevent: entry\ndata: %s\n\n" % (entry.number, body))
        bell = diary.bell()  # taken first: what comes while the store is read rings it
        found = await _following(diary, after)
        if not found:
            await _rung(bell, response)


async def _rung(bell: asyncio.Event, response: web.StreamResponse) -> None:
    """Wait for new entries. Send a sign of life if no entry comes for long."""
    try:
        async with asyncio.timeout(ALIVE_INTERVAL):
            await bell.wait()
    except TimeoutError:
        await response.write(b"event: alive\ndata: {}\n\n")


async def _following(diary: Diary, after: int) -> list[DiaryEntry]:
    return await diary.entries(after=after, limit=MAX_LIMIT, oldest_first=True)
