"""The history in SQL: steps, ended requests and usage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    RowMapping,
    Select,
    and_,
    delete,
    func,
    or_,
    select,
)

from .database import AnyInsert, Database
from .records import (
    MAX_ENDINGS,
    MAX_SOURCES,
    STEPS_KEPT,
    USAGE_DAYS,
    EndedRequest,
    EndingFilter,
    SavedStep,
    StepRange,
    UsageQuery,
    UsageRow,
    UsageSum,
    storable_text,
)
from .tables import ENDED_REQUESTS, HISTORY_STEPS, USAGE

_STEPS, _ENDED = HISTORY_STEPS.c, ENDED_REQUESTS.c


class HistoryStore:
    """Stores the history, as a part of `store.Store`. Every method raises `StoreAway`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append_history(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Write steps, endings and usage, and delete old records, in one transaction.

        Existing steps and endings stay. Existing rows of usage are replaced.
        """
        async with self._database.transaction() as connection:
            if steps:
                adding = self._database.insert(HISTORY_STEPS).on_conflict_do_nothing()
                await connection.execute(adding, [asdict(each) for each in steps])
            for too_old in old_steps(steps):
                await connection.execute(too_old)
            if endings:
                adding = self._database.insert(ENDED_REQUESTS).on_conflict_do_nothing()
                await connection.execute(adding, [_storable(each) for each in endings])
                await connection.execute(OLD_ENDINGS)
            if usage:
                replacing = _replacing(self._database.insert(USAGE))
                await connection.execute(replacing, [_storable(row) for row in usage])
                await connection.execute(older_usage(max(row.day for row in usage)))

    async def load_steps(self, step_range: StepRange, *, but: str | None = None) -> list[SavedStep]:
        """Return the steps of all sources except the source `but`, oldest first.

        Returns at most `STEPS_KEPT` times `MAX_SOURCES` steps, the latest ones.
        """
        async with self._database.transaction() as connection:
            rows = (await connection.execute(steps_in(step_range, but))).all()
        return [
            SavedStep(step_range.width, row.at, row.document, row.source) for row in reversed(rows)
        ]

    async def find_endings(self, criteria: EndingFilter) -> tuple[list[EndedRequest], int]:
        """Return matching ended requests, latest first, and the number of all stored ones."""
        query = endings_like(criteria, "C" if self._database.is_postgresql else "BINARY")
        async with self._database.transaction() as connection:
            found = await connection.execute(query)
            num = await connection.execute(NUM_ENDINGS)
            return [EndedRequest(**row) for row in found.mappings()], num.scalar_one()

    async def load_usage(self, query: UsageQuery, run: str, held_from: int) -> list[UsageSum]:
        """Return sums by column, without the days of `run` from `held_from` on.

        These days are in the memory of `run`. Returns at most `query.limit` sums.
        """
        async with self._database.transaction() as connection:
            rows = (await connection.execute(usage_sums(query, run, held_from))).mappings().all()
        return [_usage_sum(row) for row in rows]


def _storable(record: EndedRequest | UsageRow) -> Mapping[str, object]:
    """Return the record's values without characters that PostgreSQL's text cannot hold."""
    return {
        name: storable_text(value) if isinstance(value, str) else value
        for name, value in asdict(record).items()
    }


# ---- steps and ended requests

NUM_ENDINGS: Select[Any] = select(func.count()).select_from(ENDED_REQUESTS)

_OLDEST_KEPT = (
    select(_ENDED.ended_at)
    .order_by(_ENDED.ended_at.desc())
    .offset(MAX_ENDINGS - 1)
    .limit(1)
    .scalar_subquery()
)
OLD_ENDINGS = delete(ENDED_REQUESTS).where(_ENDED.ended_at < _OLDEST_KEPT)
"""Deletes the ended requests beyond `MAX_ENDINGS`."""


def steps_in(step_range: StepRange, but: str | None) -> Select[Any]:
    """Return a query for the steps of all sources except the source `but`, latest first."""
    chosen = (_STEPS.width == step_range.width) & (_STEPS.at >= step_range.since)
    if step_range.until is not None:
        chosen &= _STEPS.at < step_range.until
    if but is not None:
        chosen &= _STEPS.source != but
    return (
        select(_STEPS.at, _STEPS.document, _STEPS.source)
        .where(chosen)
        .order_by(_STEPS.at.desc(), _STEPS.source)
        .limit(STEPS_KEPT[step_range.width] * MAX_SOURCES)
    )


def old_steps(written: Sequence[SavedStep]) -> Iterator[Delete]:
    """Yield statements that delete old steps. The newest written step determines the limit."""
    for width, number in STEPS_KEPT.items():
        newest = max((each.at for each in written if each.width == width), default=0)
        is_old = (_STEPS.width == width) & (_STEPS.at <= newest - number * width)
        yield delete(HISTORY_STEPS).where(is_old)


def endings_like(criteria: EndingFilter, bytewise: str) -> Select[Any]:
    """Return a query for ended requests in order. Texts are compared `bytewise`, as in Python."""
    id = _ENDED.id.collate(bytewise)
    chosen = [
        column == storable_text(value)
        for column, value in (
            (_ENDED.model, criteria.model),
            (_ENDED.agent, criteria.agent),
            (_ENDED.caller, criteria.caller),
            (_ENDED.code, criteria.code),
        )
        if value is not None
    ]
    if (before := criteria.before) is not None:
        chosen.append(_comes_after(id, before.ended_at, storable_text(before.id)))
    query = select(ENDED_REQUESTS).where(and_(True, *chosen))
    return query.order_by(_ENDED.ended_at.desc(), id).limit(criteria.limit)


def _comes_after(id: ColumnElement[str], ended_at: float, before: str) -> ColumnElement[bool]:
    return or_(_ENDED.ended_at < ended_at, and_(_ENDED.ended_at == ended_at, id > before))


# ---- usage

_USAGE_KEY = ("day", "run", "caller", "model")
_COUNTS = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens")


def _replacing(insert: AnyInsert) -> Insert:
    """Return an insert into the table of usage that replaces rows with the same key."""
    new = {name: insert.excluded[name] for name in _COUNTS}
    return insert.on_conflict_do_update(index_elements=_USAGE_KEY, set_=new)


def older_usage(today: int) -> Delete:
    """Return a statement that deletes the days before the first kept day."""
    return delete(USAGE).where(USAGE.c.day <= today - USAGE_DAYS)


def usage_sums(query: UsageQuery, run: str, held_from: int) -> Select[tuple[object, ...]]:
    """Return a query for the sums of all runs, without the days of `run` from `held_from` on."""
    columns = [USAGE.c[name] for name in query.by]
    sums = [func.sum(USAGE.c[name]).label(name) for name in _COUNTS]
    return (
        select(*columns, *sums)
        .where(USAGE.c.day.between(query.since, query.until))
        .where((USAGE.c.run != run) | (USAGE.c.day < held_from))
        .group_by(*columns)
        .order_by(*columns)
        .limit(query.limit)
    )


def _usage_sum(row: RowMapping) -> UsageSum:
    """Return a row with integers, because PostgreSQL sums integers to decimals."""
    values = dict(row)
    return UsageSum(**values | {name: int(values[name]) for name in _COUNTS})
