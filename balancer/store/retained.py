"""Retained requests in SQLite and PostgreSQL: a row for each request, and rows for its events."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    Select,
    Update,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from .database import AnyInsert, Database, notify_changed
from .fair_ranks import fairly_ranked
from .records import storable_text
from .retained_records import (
    FoundRequest,
    RetainedBounds,
    RetainedOutcome,
    RetainedWrite,
    SavedEvents,
    SavedRequest,
)
from .tables import KEPT_EVENTS, RETAINED_REQUESTS

MOST_FOUND = 1024
"""Maximum requests with a common beginning of their names, which belong to one batch."""

_REQUESTS, _EVENTS = RETAINED_REQUESTS.c, KEPT_EVENTS.c


class RetainedStore:
    """Stores retained requests. Every method raises `StoreAway`.

    Confirmed changes survive a crash.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._transaction = database.transaction
        self._now = database.now

    async def write_retained(self, run: str, write: RetainedWrite, lease: float) -> RetainedOutcome:
        """Write for the balancer `run`. Its new requests get a lease of `lease` seconds.

        Repeating a write has no effect. Events of requests without a lease of `run` are not
        written.
        """
        async with self._transaction() as connection:
            unsaved = await self._begin(connection, run, write.begun, lease)
            lost = await self._grow(connection, run, write.grown, unsaved)
            if write.released:
                await connection.execute(_releasing(run, write.released))
            await _forget(connection, write.forgotten)
            await _cancel(connection, write.cancelled)
        return RetainedOutcome(unsaved=unsaved, lost=lost)

    async def claim_retained(
        self, run: str, lease: float, most: int, *, but: Collection[str] = ()
    ) -> list[FoundRequest]:
        """Renew the leases of `run`, and take up to `most` requests whose leases have expired.

        The oldest requests are taken first. If several balancers ask at once, each request goes to
        one of them. Requests with ids in `but` are not taken.
        """
        until = self._now + lease
        async with self._transaction() as connection:
            await connection.execute(_renewing(run, until))
            claimable = _claimable(run, self._now, most, but)
            ids = (await connection.execute(claimable)).scalars().all()
            if not ids:
                return []
            taken = RETAINED_REQUESTS.c.id.in_(ids)
            values = {"lease_owner": run, "lease_until": until}
            await connection.execute(update(RETAINED_REQUESTS).where(taken).values(**values))
            return await _found(connection, select(RETAINED_REQUESTS).where(taken))

    async def cancelled_retained(self, run: str) -> list[str]:
        """Return the ids of requests of `run` that other balancers have cancelled."""
        async with self._transaction() as connection:
            return list((await connection.execute(_cancelled(run))).scalars())

    async def find_retained(
        self, owner: str, *, id: str = "", prefix: str = ""
    ) -> list[FoundRequest]:
        """Return the owner's requests, and mark them as used.

        `id` selects one request. `prefix` selects the requests whose names begin with this text.
        """
        requests = RETAINED_REQUESTS.c
        condition = requests.owner == storable_text(owner)
        if id:
            condition &= requests.id == storable_text(id)
        if prefix:
            condition &= requests.name.startswith(storable_text(prefix), autoescape=True)
        async with self._transaction() as connection:
            used = update(RETAINED_REQUESTS).where(condition).values(used_at=self._now)
            await connection.execute(used)
            return await _found(
                connection, select(RETAINED_REQUESTS).where(condition).limit(MOST_FOUND)
            )

    async def trim_retained(self, bounds: RetainedBounds) -> int:
        """Delete requests beyond `bounds`, except running ones.

        Returns the number of deleted requests.

        The owner with the most requests first loses the least recently used one.
        """
        async with self._transaction() as connection:
            excess = _excess(bounds, self._now)
            ids = (await connection.execute(excess)).scalars().all()
            await _forget(connection, ids)
        return len(ids)

    # ---- inside

    async def _begin(
        self, connection: AsyncConnection, run: str, begun: Sequence[SavedRequest], lease: float
    ) -> frozenset[str]:
        """Add new requests. Returns the ids of requests whose names are taken."""
        if not begun:
            return frozenset()
        rows = [_storable(each) for each in begun]
        values = {
            "lease_owner": run,
            "lease_until": self._now + lease,
            "used_at": self._now,
            "has_ended": False,
        }
        await connection.execute(
            self._database.insert(RETAINED_REQUESTS).on_conflict_do_nothing().values(**values), rows
        )
        ids = [each.id for each in begun]
        query = select(RETAINED_REQUESTS.c.id).where(RETAINED_REQUESTS.c.id.in_(ids))
        return frozenset(ids) - set((await connection.execute(query)).scalars())

    async def _grow(
        self,
        connection: AsyncConnection,
        run: str,
        grown: Sequence[SavedEvents],
        unsaved: Collection[str],
    ) -> frozenset[str]:
        """Add events. Returns the ids of requests that this balancer does not run."""
        to_save = [each for each in grown if each.id not in unsaved]
        if not to_save:
            return frozenset()
        ids = {each.id for each in to_save}
        owned = set((await connection.execute(_owned(run, ids))).scalars())
        mine = [each for each in to_save if each.id in owned]
        if mine:
            rows = [{"id": e.id, "start": e.start, "document": e.document} for e in mine]
            await connection.execute(_replacing(self._database.insert(KEPT_EVENTS)), rows)
            growing = _growing(self._now)
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
    """Return the request's values.

    JSON escapes the characters that PostgreSQL's text cannot hold.
    """
    texts = {"owner": storable_text(request.owner), "name": storable_text(request.name)}
    return asdict(request) | texts | {"num_bytes": len(request.document)}


async def _forget(connection: AsyncConnection, ids: Collection[str]) -> None:
    if ids:
        for statement in _forgetting(ids):
            await connection.execute(statement)


async def _cancel(connection: AsyncConnection, ids: Collection[str]) -> None:
    if ids:
        await connection.execute(_cancelling(ids))
        await notify_changed(connection, "cancels")


async def _found(connection: AsyncConnection, query: Select[Any]) -> list[FoundRequest]:
    """Return the requests of `query` with their events, oldest first."""
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


# ---- statements


def _replacing(insert: AnyInsert) -> Insert:
    """Return an insert of events that replaces events from the same number on."""
    document = insert.excluded.document
    return insert.on_conflict_do_update(index_elements=["id", "start"], set_={"document": document})


def _owned(run: str, ids: Collection[str]) -> Select[Any]:
    """Return a query for the `ids` that `run` may write.

    The rows are locked until the transaction ends.
    """
    mine = _REQUESTS.id.in_(ids) & (_REQUESTS.lease_owner == run)
    return select(_REQUESTS.id).where(mine).with_for_update()


def _growing(now: ColumnElement[float]) -> Update:
    """Return a statement that records added events; `SavedEvents` has its parameters."""
    return (
        update(RETAINED_REQUESTS)
        .where(_REQUESTS.id == bindparam("of"))
        .values(
            model=func.coalesce(bindparam("of_model"), _REQUESTS.model),
            fingerprint=func.coalesce(bindparam("of_fingerprint"), _REQUESTS.fingerprint),
            has_ended=bindparam("ended"),
            num_bytes=_REQUESTS.num_bytes + bindparam("grown"),
            used_at=now,
        )
    )


def _releasing(run: str, ids: Collection[str]) -> Update:
    """Return a statement that ends leases of `run`."""
    mine = _REQUESTS.id.in_(ids) & (_REQUESTS.lease_owner == run)
    return update(RETAINED_REQUESTS).where(mine).values(lease_owner="", lease_until=0.0)


def _forgetting(ids: Collection[str]) -> tuple[Delete, Delete]:
    """Return statements that delete requests and their events."""
    return (
        delete(KEPT_EVENTS).where(_EVENTS.id.in_(ids)),
        delete(RETAINED_REQUESTS).where(_REQUESTS.id.in_(ids)),
    )


def _renewing(run: str, until: ColumnElement[float]) -> Update:
    """Return a statement that renews the leases of `run`."""
    mine = (_REQUESTS.lease_owner == run) & ~_REQUESTS.has_ended
    return update(RETAINED_REQUESTS).where(mine).values(lease_until=until)


def _cancelling(ids: Collection[str]) -> Update:
    """Return a statement that marks requests as cancelled if they have not ended."""
    running = _REQUESTS.id.in_(ids) & ~_REQUESTS.has_ended
    return update(RETAINED_REQUESTS).where(running).values(is_cancelled=True)


def _cancelled(run: str) -> Select[Any]:
    """Return a query for the requests of `run` whose callers have cancelled them."""
    mine = (_REQUESTS.lease_owner == run) & ~_REQUESTS.has_ended
    return select(_REQUESTS.id).where(mine & _REQUESTS.is_cancelled)


def _claimable(
    run: str, now: ColumnElement[float], most: int, but: Collection[str] = ()
) -> Select[Any]:
    """Return a query for other balancers' requests with expired leases, oldest first.

    The result lacks requests that another transaction is taking.
    """
    return (
        select(_REQUESTS.id)
        .where(~_REQUESTS.has_ended)
        .where(_REQUESTS.lease_owner != run)
        .where(_REQUESTS.lease_until <= now)
        .where(_REQUESTS.id.not_in(list(but)))
        .order_by(_REQUESTS.created_at, _REQUESTS.id)
        .limit(most)
        .with_for_update(skip_locked=True)
    )


def _excess(bounds: RetainedBounds, now: ColumnElement[float]) -> Select[Any]:
    """Return a query for the ids of requests beyond `bounds`, except running ones."""
    is_idle = case((_REQUESTS.has_ended, True), else_=_REQUESTS.lease_until <= now).label("is_idle")
    ranked = fairly_ranked(
        _REQUESTS.id,
        _REQUESTS.owner,
        latest=(_REQUESTS.used_at.desc(), _REQUESTS.id),
        num_bytes=_REQUESTS.num_bytes,
        more=(_REQUESTS.used_at, is_idle),
    )
    beyond = or_(
        ranked.c.place > bounds.num,
        ranked.c.total > bounds.num_bytes,
        ranked.c.used_at < now - bounds.age,
    )
    return select(ranked.c.id).where(ranked.c.is_idle).where(beyond)
