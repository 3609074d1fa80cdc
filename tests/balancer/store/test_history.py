"""The history in both databases."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from arriero.balancer.history.endings import latest
from arriero.balancer.store import history
from arriero.balancer.store.history import HistoryStore, older_usage, usage_sums
from arriero.balancer.store.records import (
    MAX_ENDINGS,
    USAGE_DAYS,
    EndedRequest,
    EndingFilter,
    SavedStep,
    StepRange,
    UsageColumn,
    UsageQuery,
    UsageRow,
    UsageSum,
    place_of,
)
from arriero.balancer.store.tables import USAGE
from tests.balancer.store.conftest import OpenStore
from tests.balancer.store.test_history_writer import ending, step

FULL = EndedRequest(
    id="r1",
    ended_at=1_700_000_000.25,
    kind="generate",
    code="engine_failed",
    caller="anonymous",
    model="tiny",
    agent="ana",
    error="it broke",
    prompt_tokens=2**40,
    cached_tokens=2,
    completion_tokens=3,
    reasoning_tokens=1,
    queue_ms=0.125,
    first_token_ms=1.5,
    total_ms=20.25,
    prefill_tokens_per_second=1000.5,
    decode_tokens_per_second=33.25,
    moves=2,
    balancer="east",
)


@pytest.fixture
async def store(opened_sql: OpenStore) -> HistoryStore:
    return (await opened_sql()).history


async def endings_in(store: HistoryStore, **wanted: Any) -> list[EndedRequest]:
    return (await store.find_endings(EndingFilter(**wanted)))[0]


async def test_the_history_comes_back_as_it_was(opened_sql: OpenStore) -> None:
    steps = [SavedStep(1, 100, "{}"), SavedStep(1, 101, '{"a": 1}'), SavedStep(60, 60, "[]")]
    await (await opened_sql()).history.append_history(steps, [FULL, ending("r2")])
    store = (await opened_sql()).history
    assert await store.load_steps(StepRange(1, 0)) == steps[:2]
    assert await store.load_steps(StepRange(1, 101)) == steps[1:2]
    assert await store.load_steps(StepRange(60, 0)) == steps[2:]
    assert await store.find_endings(EndingFilter()) == ([FULL, ending("r2")], 2)
    assert await store.find_endings(EndingFilter(limit=1)) == ([FULL], 2), "the latest"


async def test_the_same_history_again_changes_nothing(store: HistoryStore) -> None:
    """As after a connection that broke before the confirmation came."""
    await store.append_history([step(1)], [FULL])
    await store.append_history([step(1), step(2)], [FULL, ending("r2")])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(2)]
    assert len(await endings_in(store)) == 2


async def test_old_history_is_deleted(store: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.append_history([step(at) for at in (0, 1, 3600)], [])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(3600)]
    await store.append_history([SavedStep(60, 90_000, "{}")], [])
    assert await store.load_steps(StepRange(1, 0)) == [step(1), step(3600)], (
        "minutes do not age seconds"
    )


async def test_only_the_latest_endings_are_kept(store: HistoryStore) -> None:
    endings = [replace(ending(f"r{at}"), ended_at=at) for at in range(MAX_ENDINGS + 3)]
    await store.append_history([], endings)
    kept = await endings_in(store, limit=2 * MAX_ENDINGS)
    assert kept == endings[:2:-1]


async def test_text_that_a_database_cannot_hold_is_mended(store: HistoryStore) -> None:
    await store.append_history([], [replace(FULL, error="a\0b\ud800c")])
    [kept] = await endings_in(store)
    assert kept.error == "a\N{REPLACEMENT CHARACTER}b?c"


async def test_a_batch_is_written_whole_or_not_at_all(store: HistoryStore) -> None:
    broken = replace(FULL, code=None)  # type: ignore[arg-type]
    with pytest.raises(IntegrityError):
        await store.append_history([step(1)], [ending("r"), broken])
    assert await store.load_steps(StepRange(1, 0)) == []
    assert await endings_in(store) == []


async def test_usage_is_added_up_over_runs(opened_sql: OpenStore) -> None:
    rows = [usage(1, "alice"), usage(2, "alice"), usage(2, "bob", run="other")]
    await (await opened_sql()).history.append_history([], [], rows)
    store = (await opened_sql()).history
    alice, bob = await store.load_usage(by("caller"), "", 0)
    assert alice == UsageSum(
        caller="alice",
        requests=2,
        errors=4,
        prompt_tokens=2**41,
        cached_tokens=6,
        completion_tokens=8,
    )
    assert (bob.caller, bob.requests) == ("bob", 1)
    sums = await store.load_usage(by("day", "model"), "", 0)
    assert [(each.day, each.model, each.requests) for each in sums] == [
        (1, "tiny", 1),
        (2, "tiny", 2),
    ]
    assert [each.day for each in await store.load_usage(by("day", limit=1), "", 0)] == [1]
    assert await store.load_usage(replace(by("day"), since=3), "", 0) == []


async def test_usage_that_a_run_holds_itself_is_left_out(store: HistoryStore) -> None:
    rows = [usage(1, "alice"), usage(2, "alice"), usage(2, "alice", run="other")]
    await store.append_history([], [], rows)
    [found] = await store.load_usage(by("caller"), "run", 2)
    assert found.requests == 2, "the other's, and its own of the day before"


async def test_usage_written_again_takes_the_place_of_the_former(store: HistoryStore) -> None:
    """As after a connection that broke before the confirmation came."""
    for requests in (1, 1, 5):
        await store.append_history([], [], [replace(usage(1, "alice"), requests=requests)])
    [found] = await store.load_usage(by("caller"), "", 0)
    assert found.requests == 5


async def test_old_usage_is_deleted(store: HistoryStore) -> None:
    await store.append_history([], [], [usage(1, "alice"), usage(2, "alice")])
    await store.append_history([], [], [usage(USAGE_DAYS + 1, "alice")])
    wanted = replace(by("day"), until=USAGE_DAYS + 1)
    found = await store.load_usage(wanted, "", 0)
    assert [each.day for each in found] == [2, USAGE_DAYS + 1]


def usage(day: int, caller: str, run: str = "run") -> UsageRow:
    return UsageRow(
        run=run,
        day=day,
        caller=caller,
        model="tiny",
        requests=1,
        errors=2,
        prompt_tokens=2**40,
        cached_tokens=3,
        completion_tokens=4,
    )


def by(*columns: UsageColumn, limit: int = 100) -> UsageQuery:
    return UsageQuery(since=0, until=10, by=columns, limit=limit)


def saved(at: int, source: str) -> SavedStep:
    return SavedStep(1, at, f'"{source}"', source)


async def test_each_balancer_has_its_own_steps(store: HistoryStore) -> None:
    await store.append_history([saved(1, "a"), saved(2, "a")], [])
    await store.append_history([saved(1, "b"), saved(3, "b")], [])
    steps = await store.load_steps(StepRange(1, 0))
    assert {(each.at, each.source) for each in steps} == {(1, "a"), (1, "b"), (2, "a"), (3, "b")}
    assert [each.at for each in steps] == [1, 1, 2, 3]
    assert await store.load_steps(StepRange(1, 0), but="a") == [saved(1, "b"), saved(3, "b")]
    assert await store.load_steps(StepRange(1, 2, 3)) == [saved(2, "a")]


async def test_steps_of_a_balancer_that_is_gone_grow_old_with_the_others(
    store: HistoryStore,
) -> None:
    await store.append_history([saved(1, "a")], [])
    await store.append_history([saved(4000, "b")], [])
    assert await store.load_steps(StepRange(1, 0)) == [saved(4000, "b")]


IDS = ("a", "B", "_", "A-1", "é", "b")
"""Languages have other orders of these than their bytes."""

ENDED = [
    replace(
        ending(f"{id}{at}"),
        ended_at=at / 2,
        model=("x", None)[at % 2],
        agent=f"agent {at % 3}",
        caller="ana" if id in "ab" else "b\0b",
        code="stop" if at % 4 else "length",
    )
    for at in range(4)
    for id in IDS
]


@pytest.mark.parametrize(
    "wanted",
    [
        EndingFilter(),
        EndingFilter(limit=5),
        EndingFilter(model="x"),
        EndingFilter(agent="agent 1", code="stop"),
        EndingFilter(caller="ana", limit=3),
        EndingFilter(caller="nobody"),
        *(EndingFilter(before=place_of(ENDED[number])) for number in (0, 7, 23)),
    ],
)
async def test_ended_requests_are_found_as_in_memory(
    store: HistoryStore, wanted: EndingFilter
) -> None:
    await store.append_history([], ENDED)
    found, num = await store.find_endings(wanted)
    assert [each.id for each in found] == [each.id for each in latest(ENDED, wanted)]
    assert num == len(ENDED)


async def test_a_caller_is_found_by_a_name_that_no_database_can_hold(store: HistoryStore) -> None:
    await store.append_history([], ENDED)
    found, _ = await store.find_endings(EndingFilter(caller="b\0b"))
    assert len(found) == 16


async def test_pages_follow_one_another(store: HistoryStore) -> None:
    await store.append_history([], ENDED)
    seen: list[EndedRequest] = []
    while page := (await store.find_endings(_after(seen)))[0]:
        seen += page
    assert [each.id for each in seen] == [each.id for each in latest(ENDED, EndingFilter())]


def _after(seen: list[EndedRequest]) -> EndingFilter:
    return EndingFilter(limit=5, before=place_of(seen[-1]) if seen else None)


def test_a_row_is_replaced_whole() -> None:
    texts = [
        str(history._replacing(sqlite.insert(USAGE)).compile(dialect=sqlite.dialect())),
        str(history._replacing(postgresql.insert(USAGE)).compile(dialect=postgresql.dialect())),
    ]
    for text in texts:
        assert "ON CONFLICT (day, run, caller, model) DO UPDATE" in text
        assert all(f"{name} = excluded.{name}" in text for name in history._COUNTS)


def test_the_days_that_are_kept() -> None:
    compiled = older_usage(1000).compile()
    assert list(compiled.params.values()) == [1000 - USAGE_DAYS]


def test_sums_by_the_columns_that_are_asked_for() -> None:
    query = UsageQuery(since=1, until=2, by=("caller", "model"), limit=7)
    text = str(usage_sums(query, "run", 2))
    assert "GROUP BY usage.caller, usage.model ORDER BY usage.caller, usage.model" in text
