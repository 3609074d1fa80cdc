"""The statements about the history's steps and ended requests, for both databases."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, and_, delete, func, or_, select

from ..records import (
    MAX_ENDINGS,
    MAX_SOURCES,
    STEPS_KEPT,
    EndingFilter,
    SavedStep,
    StepRange,
    storable_text,
)
from ..tables import ENDED_REQUESTS, HISTORY_STEPS

_STEPS, _ENDED = HISTORY_STEPS.c, ENDED_REQUESTS.c

_BYTEWISE = {"sqlite": "BINARY", "postgresql": "C"}
"""Collations under which texts are in the order that Python has them in."""

NUM_ENDINGS: Select[Any] = select(func.count()).select_from(ENDED_REQUESTS)

_OLDEST_KEPT = (
    select(_ENDED.ended_at)
    .order_by(_ENDED.ended_at.desc())
    .offset(MAX_ENDINGS - 1)
    .limit(1)
    .scalar_subquery()
)
OLD_ENDINGS = delete(ENDED_REQUESTS).where(_ENDED.ended_at < _OLDEST_KEPT)
"""Deletes what is beyond `MAX_ENDINGS`."""


def steps_in(wanted: StepRange, but: str | None) -> Select[Any]:
    """Steps of all sources, or of all `but` one; the latest first."""
    chosen = (_STEPS.width == wanted.width) & (_STEPS.at >= wanted.since)
    if wanted.until is not None:
        chosen &= _STEPS.at < wanted.until
    if but is not None:
        chosen &= _STEPS.source != but
    return (
        select(_STEPS.at, _STEPS.document, _STEPS.source)
        .where(chosen)
        .order_by(_STEPS.at.desc(), _STEPS.source)
        .limit(STEPS_KEPT[wanted.width] * MAX_SOURCES)
    )


def old_steps(written: Sequence[SavedStep]) -> Iterator[Delete]:
    """Delete the steps, of whichever source, that are too old beside those that were written."""
    for width, number in STEPS_KEPT.items():
        newest = max((each.at for each in written if each.width == width), default=0)
        is_old = (_STEPS.width == width) & (_STEPS.at <= newest - number * width)
        yield delete(HISTORY_STEPS).where(is_old)


def endings_like(wanted: EndingFilter, kind: str) -> Select[Any]:
    """Ended requests in their order."""
    id = _ENDED.id.collate(_BYTEWISE[kind])
    chosen = [
        column == storable_text(value)
        for column, value in (
            (_ENDED.model, wanted.model),
            (_ENDED.agent, wanted.agent),
            (_ENDED.caller, wanted.caller),
            (_ENDED.code, wanted.code),
        )
        if value is not None
    ]
    if (before := wanted.before) is not None:
        chosen.append(_comes_after(id, before.ended_at, storable_text(before.id)))
    query = select(ENDED_REQUESTS).where(and_(True, *chosen))
    return query.order_by(_ENDED.ended_at.desc(), id).limit(wanted.limit)


def _comes_after(id: ColumnElement[str], ended_at: float, before: str) -> ColumnElement[bool]:
    return or_(_ENDED.ended_at < ended_at, and_(_ENDED.ended_at == ended_at, id > before))
