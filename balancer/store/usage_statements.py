"""The statements about usage, for both databases."""

from typing import TypeVar

from sqlalchemy import Delete, Select, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from .records import USAGE_DAYS, UsageQuery
from .tables import USAGE

KEY = ("day", "run", "caller", "model")
COUNTS = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens")

AnyInsert = TypeVar("AnyInsert", sqlite.Insert, postgresql.Insert)


def replacing(insert: AnyInsert) -> AnyInsert:
    """`insert` into the table of usage, in place of rows with the same key."""
    new = {name: insert.excluded[name] for name in COUNTS}
    return insert.on_conflict_do_update(index_elements=KEY, set_=new)


def older_usage(today: int) -> Delete:
    """Deletes days that are no longer kept."""
    return delete(USAGE).where(USAGE.c.day <= today - USAGE_DAYS)


def usage_sums(query: UsageQuery, run: str, held_from: int) -> Select[tuple[object, ...]]:
    """Sums of every run, but for the days from `held_from` on of `run`."""
    columns = [USAGE.c[name] for name in query.by]
    sums = [func.sum(USAGE.c[name]).label(name) for name in COUNTS]
    return (
        select(*columns, *sums)
        .where(USAGE.c.day.between(query.since, query.until))
        .where((USAGE.c.run != run) | (USAGE.c.day < held_from))
        .group_by(*columns)
        .order_by(*columns)
        .limit(query.limit)
    )
