"""Kept requests in SQLite and PostgreSQL: a row for each request, and rows for its events."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from itertools import groupby
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..news.records import CancelRequest
from ..news.sql import tell
from ..records import storable_text
from ..tables import KEPT_EVENTS, KEPT_REQUESTS
from . import statements
from .records import (
    FoundRequest,
    KeptBounds,
    KeptOutcome,
    KeptWrite,
    SavedEvents,
    SavedRequest,
)

MOST_FOUND = 1024
"""Requests whose names begin alike: those of one batch."""

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""A transaction of the store. Raises `StoreAway`."""


class SqlKeptStore:
    """A `KeptStore`; `kind` is the database's."""

    def __init__(self, transaction: Transaction, kind: str) -> None:
        self._transaction = transaction
        self._kind = kind
        self._now = statements.clock(kind)

    async def write_kept(self, run: str, write: KeptWrite, lease: float) -> KeptOutcome:
        async with self._transaction() as connection:
            unsaved = await self._begin(connection, run, write.begun, lease)
            lost = await self._grow(connection, run, write.grown, unsaved)
            if write.released:
                await connection.execute(statements.releasing(run, write.released))
            await _forget(connection, write.forgotten)
            await _cancel(connection, write.cancelled)
        return KeptOutcome(unsaved=unsaved, lost=lost)

    async def claim_kept(
        self, run: str, lease: float, most: int, *, but: Collection[str] = ()
    ) -> list[FoundRequest]:
        until = self._now + lease
        async with self._transaction() as connection:
            await connection.execute(statements.renewing(run, until))
            claimable = statements.claimable(run, self._now, most, but)
            ids = (await connection.execute(claimable)).scalars().all()
            if not ids:
                return []
            taken = KEPT_REQUESTS.c.id.in_(ids)
            values = {"lease_owner": run, "lease_until": until}
            await connection.execute(update(KEPT_REQUESTS).where(taken).values(**values))
            return await _found(connection, select(KEPT_REQUESTS).where(taken))

    async def cancelled_kept(self, run: str) -> list[str]:
        async with self._transaction() as connection:
            return list((await connection.execute(statements.cancelled(run))).scalars())

    async def find_kept(self, owner: str, *, id: str = "", prefix: str = "") -> list[FoundRequest]:
        requests = KEPT_REQUESTS.c
        wanted = requests.owner == storable_text(owner)
        if id:
            wanted &= requests.id == storable_text(id)
        if prefix:
            wanted &= requests.name.startswith(storable_text(prefix), autoescape=True)
        async with self._transaction() as connection:
            used = update(KEPT_REQUESTS).where(wanted).values(used_at=self._now)
            await connection.execute(used)
            return await _found(connection, select(KEPT_REQUESTS).where(wanted).limit(MOST_FOUND))

    async def trim_kept(self, bounds: KeptBounds) -> int:
        async with self._transaction() as connection:
            excess = statements.excess(bounds, self._now)
            ids = (await connection.execute(excess)).scalars().all()
            await _forget(connection, ids)
        return len(ids)

    # ---- inside

    async def _begin(
        self, connection: AsyncConnection, run: str, begun: Sequence[SavedRequest], lease: float
    ) -> frozenset[str]:
        """Add new requests; the ids of those whose name is taken."""
        if not begun:
            return frozenset()
        rows = [_storable(each) for each in begun]
        values = {
            "lease_owner": run,
            "lease_until": self._now + lease,
            "used_at": self._now,
            "has_ended": False,
        }
        await connection.execute(statements.adding(self._kind).values(**values), rows)
        ids = [each.id for each in begun]
        query = select(KEPT_REQUESTS.c.id).where(KEPT_REQUESTS.c.id.in_(ids))
        return frozenset(ids) - set((await connection.execute(query)).scalars())

    async def _grow(
        self,
        connection: AsyncConnection,
        run: str,
        grown: Sequence[SavedEvents],
        unsaved: Collection[str],
    ) -> frozenset[str]:
        """Add events; the ids of those that are not this balancer's."""
        wanted = [each for each in grown if each.id not in unsaved]
        if not wanted:
            return frozenset()
        ids = {each.id for each in wanted}
        owned = set((await connection.execute(statements.owned(run, ids))).scalars())
        mine = [each for each in wanted if each.id in owned]
        if mine:
            rows = [{"id": e.id, "start": e.start, "document": e.document} for e in mine]
            await connection.execute(statements.replacing(self._kind), rows)
            growing = statements.growing(self._now)
            await connection.execute(growing, [_growth(each) for each in mine])
        return frozenset(ids - owned)


def _growth(events: SavedEvents) -> dict[str, Any]:
    return {
        "of": events.id,
        "of_model": None if events.model is None else storable_text(events.model),
        "of_fingerprint": events.fingerprint,
        "ended": events.has_ended,
        "grown": len(events.document),
    }


def _storable(request: SavedRequest) -> dict[str, Any]:
    """JSON has no characters that PostgreSQL's text cannot hold: it escapes them."""
    texts = {"owner": storable_text(request.owner), "name": storable_text(request.name)}
    return asdict(request) | texts | {"num_bytes": len(request.document)}


async def _forget(connection: AsyncConnection, ids: Collection[str]) -> None:
    if ids:
        for statement in statements.forgetting(ids):
            await connection.execute(statement)


async def _cancel(connection: AsyncConnection, ids: Collection[str]) -> None:
    if ids:
        await connection.execute(statements.cancelling(ids))
        for id in ids:
            await tell(connection, CancelRequest(id))


async def _found(connection: AsyncConnection, query: Select[Any]) -> list[FoundRequest]:
    """The requests of `query` with their events, oldest first."""
    rows = (await connection.execute(query)).mappings().all()
    ids = [row["id"] for row in rows]
    events = await connection.execute(
        select(KEPT_EVENTS.c.id, KEPT_EVENTS.c.document)
        .where(KEPT_EVENTS.c.id.in_(ids))
        .order_by(KEPT_EVENTS.c.id, KEPT_EVENTS.c.start)
    )
    documents = {
        id: tuple(row.document for row in group)
        for id, group in groupby(events.all(), key=lambda row: row.id)
    }
    found = [
        FoundRequest(
            request=SavedRequest(**{name: row[name] for name in _NAMES}),
            events=documents.get(row["id"], ()),
            has_ended=row["has_ended"],
            model=row["model"],
            fingerprint=row["fingerprint"],
            is_cancelled=row["is_cancelled"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (each.request.created_at, each.request.id))


_NAMES = ("id", "owner", "name", "digest", "document", "created_at")
