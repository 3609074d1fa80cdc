"""The usage of each model by each caller on each day (UTC), counted by this run of the balancer.

Rows have totals, so a row may be written to the store several times.

Invariants: there are at most `MAX_ROWS` rows; rows of today are never forgotten. If today alone
has too many rows, further models of a caller are counted as `OTHERS`, and then further callers
too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple

from ..fleet.recorder import Ending
from ..store.records import UsageColumn, UsageCounts, UsageQuery, UsageRow, UsageSum

MAX_ROWS = 10_000
OTHERS = ""
MAX_NAME = 300

COUNTS = tuple(field.name for field in fields(UsageCounts))
_counts = attrgetter(*COUNTS)

_OF_NO_MODEL = frozenset({"model_not_found", "shutting_down"})
"""Error codes of requests whose model may be any text from a client."""


class _Key(NamedTuple):
    day: int
    caller: str
    model: str


@dataclass(slots=True)
class _Counted:
    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class UsageLedger:
    """The rows of this run. No other run of a balancer has the name `run`."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._rows: dict[_Key, _Counted] = {}
        self._unwritten: set[_Key] = set()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def held_from(self) -> int | None:
        """The first day with rows of this run, or `None` if there are no rows."""
        return next(iter(self._rows)).day if self._rows else None

    def ended(self, ending: Ending, day: int) -> None:
        """Count a request that ended or was refused on `day`. Days must not go back."""
        is_nameless = ending.agent is None and ending.code in _OF_NO_MODEL
        model = OTHERS if is_nameless else (ending.model or OTHERS)[:MAX_NAME]
        row = self._row(_Key(day, ending.caller.name, model))
        row.requests += 1
        row.errors += ending.error is not None
        row.prompt_tokens += ending.usage.prompt_tokens
        row.cached_tokens += ending.usage.cached_tokens
        row.completion_tokens += ending.usage.completion_tokens

    def take_unwritten(self) -> list[UsageRow]:
        """Return the rows that have changed since the last call."""
        keys, self._unwritten = sorted(self._unwritten), set()
        return [self._shown(key) for key in keys]

    def rows(self, since: int, until: int) -> Iterator[UsageRow]:
        """Yield the rows from the day `since` to the day `until`."""
        return (self._shown(key) for key in self._rows if since <= key.day <= until)

    def _row(self, key: _Key) -> _Counted:
        row = self._rows.get(key)
        if row is None:
            key = self._with_room(key)
            row = self._rows.setdefault(key, _Counted())
        self._unwritten.add(key)
        return row

    def _with_room(self, key: _Key) -> _Key:
        """Return `key`, or the key to use instead if there are too many rows."""
        if len(self._rows) >= MAX_ROWS:
            self._forget_before(key.day)
        if len(self._rows) < MAX_ROWS:
            return key
        coarse = key._replace(model=OTHERS)
        return coarse if coarse in self._rows else _Key(key.day, OTHERS, OTHERS)

    def _forget_before(self, today: int) -> None:
        """Forget the oldest day, unless it is today or has rows that were not taken yet."""
        oldest = self.held_from
        if oldest is None or oldest == today or any(key.day == oldest for key in self._unwritten):
            return
        self._rows = {key: row for key, row in self._rows.items() if key.day != oldest}

    def _shown(self, key: _Key) -> UsageRow:
        counts = dict(zip(COUNTS, _counts(self._rows[key]), strict=True))
        return UsageRow(run=self.run, day=key.day, caller=key.caller, model=key.model, **counts)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if len(self._rows) > MAX_ROWS + 1:
            raise RuntimeError("there are too many rows")
        days = [key.day for key in self._rows]
        if days != sorted(days) or not self._unwritten <= self._rows.keys():
            raise RuntimeError("days are out of order, or a row is gone before it was taken")


def added_up(parts: Iterable[UsageRow | UsageSum], query: UsageQuery) -> list[UsageSum]:
    """Return the sums of `parts` by the columns of `query`, at most `query.limit`."""
    sums: dict[tuple[int | str, ...], _Counted] = {}
    for part in parts:
        into = sums.setdefault(tuple(getattr(part, name) for name in query.by), _Counted())
        for name in COUNTS:
            setattr(into, name, getattr(into, name) + getattr(part, name))
    found = sorted(sums.items(), key=lambda item: item[0])[: query.limit]
    return [_sum(query.by, key, counted) for key, counted in found]


def _sum(by: tuple[UsageColumn, ...], key: tuple[int | str, ...], counted: _Counted) -> UsageSum:
    columns = dict(zip(by, key, strict=True))
    counts = dict(zip(COUNTS, _counts(counted), strict=True))
    return UsageSum(**columns, **counts)  # type: ignore[arg-type]
