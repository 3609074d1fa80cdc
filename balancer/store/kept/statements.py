"""The statements about kept requests, for both databases. Times are those of the database."""

from collections.abc import Collection
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
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from ..tables import KEPT_EVENTS, KEPT_REQUESTS
from .records import KeptBounds

_REQUESTS, _EVENTS = KEPT_REQUESTS.c, KEPT_EVENTS.c

_CLOCKS: dict[str, ColumnElement[float]] = {
    # Both tell the time of the transaction's machine: that of the server, or of the only host.
    "sqlite": literal_column("(julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": literal_column("extract(epoch FROM clock_timestamp())::double precision"),
}


def clock(kind: str) -> ColumnElement[float]:
    """Seconds since 1970 by the database's clock, to about a millisecond."""
    return _CLOCKS[kind]


def adding(kind: str) -> Insert:
    """Inserts requests; those whose id, or owner and name, are there already stay as they are."""
    if kind == "sqlite":
        return sqlite.insert(KEPT_REQUESTS).on_conflict_do_nothing()
    return postgresql.insert(KEPT_REQUESTS).on_conflict_do_nothing()


def replacing(kind: str) -> Insert:
    """Inserts events, in place of those from the same number on."""
    if kind == "sqlite":
        into = sqlite.insert(KEPT_EVENTS)
        return into.on_conflict_do_update(
            index_elements=["id", "start"], set_={"document": into.excluded.document}
        )
    into_pg = postgresql.insert(KEPT_EVENTS)
    return into_pg.on_conflict_do_update(
        index_elements=["id", "start"], set_={"document": into_pg.excluded.document}
    )


def owned(run: str, ids: Collection[str]) -> Select[Any]:
    """Which of `ids` may be written by `run`; they are locked until the transaction ends."""
    mine = _REQUESTS.id.in_(ids) & (_REQUESTS.lease_owner == run)
    return select(_REQUESTS.id).where(mine).with_for_update()


def growing(now: ColumnElement[float]) -> Update:
    """Notes that events of a request were added; parameters are those of `SavedEvents`."""
    return (
        update(KEPT_REQUESTS)
        .where(_REQUESTS.id == bindparam("of"))
        .values(
            model=func.coalesce(bindparam("of_model"), _REQUESTS.model),
            fingerprint=func.coalesce(bindparam("of_fingerprint"), _REQUESTS.fingerprint),
            has_ended=bindparam("ended"),
            num_bytes=_REQUESTS.num_bytes + bindparam("grown"),
            used_at=now,
        )
    )


def releasing(run: str, ids: Collection[str]) -> Update:
    """Ends leases of `run`."""
    mine = _REQUESTS.id.in_(ids) & (_REQUESTS.lease_owner == run)
    return update(KEPT_REQUESTS).where(mine).values(lease_owner="", lease_until=0.0)


def forgetting(ids: Collection[str]) -> tuple[Delete, Delete]:
    """Deletes requests with their events."""
    return (
        delete(KEPT_EVENTS).where(_EVENTS.id.in_(ids)),
        delete(KEPT_REQUESTS).where(_REQUESTS.id.in_(ids)),
    )


def renewing(run: str, until: ColumnElement[float]) -> Update:
    """Renews the leases of `run`."""
    mine = (_REQUESTS.lease_owner == run) & ~_REQUESTS.has_ended
    return update(KEPT_REQUESTS).where(mine).values(lease_until=until)


def cancelling(ids: Collection[str]) -> Update:
    """Notes that requests are to end, where they have not."""
    running = _REQUESTS.id.in_(ids) & ~_REQUESTS.has_ended
    return update(KEPT_REQUESTS).where(running).values(is_cancelled=True)


def cancelled(run: str) -> Select[Any]:
    """Which requests of `run` are to end."""
    mine = (_REQUESTS.lease_owner == run) & ~_REQUESTS.has_ended
    return select(_REQUESTS.id).where(mine & _REQUESTS.is_cancelled)


def claimable(
    run: str, now: ColumnElement[float], most: int, but: Collection[str] = ()
) -> Select[Any]:
    """Others' requests whose lease is over, oldest first; not those that one is about to take."""
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


def excess(bounds: KeptBounds, now: ColumnElement[float]) -> Select[Any]:
    """The ids of what is beyond `bounds`, but for what runs."""
    latest = (_REQUESTS.used_at.desc(), _REQUESTS.id)
    ranked = select(
        _REQUESTS.id,
        _REQUESTS.used_at,
        case((_REQUESTS.has_ended, True), else_=_REQUESTS.lease_until <= now).label("is_idle"),
        func.row_number().over(order_by=latest).label("place"),
        func.sum(_REQUESTS.num_bytes).over(order_by=latest).label("total"),
    ).subquery()
    beyond = or_(
        ranked.c.place > bounds.num,
        ranked.c.total > bounds.num_bytes,
        ranked.c.used_at < now - bounds.age,
    )
    return select(ranked.c.id).where(ranked.c.is_idle).where(beyond)
