"""The statements of the history, by what both databases answer; `test_sql` has the rest."""

from dataclasses import replace

import pytest

from arriero.balancer.history.endings import latest
from arriero.balancer.store.records import (
    EndedRequest,
    EndingFilter,
    SavedStep,
    StepRange,
    place_of,
)
from arriero.balancer.store.sql import SqlStore
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.test_pending import ending


@pytest.fixture
async def store(opened_sql: OpenSql) -> SqlStore:
    return await opened_sql()


def saved(at: int, source: str) -> SavedStep:
    return SavedStep(1, at, f'"{source}"', source)


async def test_each_balancer_has_its_own_steps(store: SqlStore) -> None:
    await store.append_history([saved(1, "a"), saved(2, "a")], [])
    await store.append_history([saved(1, "b"), saved(3, "b")], [])
    steps = await store.load_steps(StepRange(1, 0))
    assert {(each.at, each.source) for each in steps} == {(1, "a"), (1, "b"), (2, "a"), (3, "b")}
    assert [each.at for each in steps] == [1, 1, 2, 3]
    assert await store.load_steps(StepRange(1, 0), but="a") == [saved(1, "b"), saved(3, "b")]
    assert await store.load_steps(StepRange(1, 2, 3)) == [saved(2, "a")]


async def test_steps_of_a_balancer_that_is_gone_grow_old_with_the_others(store: SqlStore) -> None:
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
async def test_ended_requests_are_found_as_in_memory(store: SqlStore, wanted: EndingFilter) -> None:
    await store.append_history([], ENDED)
    found, num = await store.find_endings(wanted)
    assert [each.id for each in found] == [each.id for each in latest(ENDED, wanted)]
    assert num == len(ENDED)


async def test_a_caller_is_found_by_a_name_that_no_database_can_hold(store: SqlStore) -> None:
    await store.append_history([], ENDED)
    found, _ = await store.find_endings(EndingFilter(caller="b\0b"))
    assert len(found) == 16


async def test_pages_follow_one_another(store: SqlStore) -> None:
    await store.append_history([], ENDED)
    seen: list[EndedRequest] = []
    while page := (await store.find_endings(_after(seen)))[0]:
        seen += page
    assert [each.id for each in seen] == [each.id for each in latest(ENDED, EndingFilter())]


def _after(seen: list[EndedRequest]) -> EndingFilter:
    return EndingFilter(limit=5, before=place_of(seen[-1]) if seen else None)
