"""The tables of 0.1.0: what is there at first, and what there is only one of."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Table, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from arriero.balancer.store.database import engine_of
from arriero.balancer.store.tables import (
    ACCESS_STATE,
    CORDONS,
    DESIRED_STATE,
    LEADERSHIP,
    METADATA,
    USAGE,
)
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenStore

USED = {
    "day": 1,
    "run": "r",
    "caller": "alice",
    "model": "tiny",
    "requests": 2**40,
    "errors": 0,
    "prompt_tokens": 2**40,
    "cached_tokens": 0,
    "completion_tokens": 0,
}
CORDON = {"agent": "a", "name": "host", "since": 1.5}


@pytest.fixture
async def database(opened_sql: OpenStore, url: str) -> AsyncIterator[AsyncEngine]:
    """What the migration made."""
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    yield engine
    await engine.dispose()


async def add(database: AsyncEngine, table: Table, *rows: dict[str, object]) -> None:
    async with database.begin() as connection:
        await connection.execute(insert(table), rows)


async def num_rows(database: AsyncEngine, table: Table) -> int:
    async with database.begin() as connection:
        return len((await connection.execute(select(table))).all())


async def test_nothing_is_saved_and_nobody_led(database: AsyncEngine) -> None:
    filled = {table.name for table in METADATA.sorted_tables if await num_rows(database, table)}
    assert filled == {"access_state", "desired_state", "leadership"}
    async with database.begin() as connection:
        state = await connection.execute(select(DESIRED_STATE))
        assert [tuple(row) for row in state] == [(1, 0, "")]
        access = await connection.execute(select(ACCESS_STATE))
        assert [tuple(row) for row in access] == [(1, False)]
        leader = await connection.execute(select(LEADERSHIP))
        assert [tuple(row) for row in leader] == [(1, 0)]


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (DESIRED_STATE, {"revision": 7, "document": "another"}),
        (LEADERSHIP, {"epoch": 7}),
        (ACCESS_STATE, {"had_keys": True}),
    ],
    ids=["state", "leader", "access"],
)
async def test_there_is_one(database: AsyncEngine, table: Table, row: dict[str, object]) -> None:
    for id in (1, 2):
        with pytest.raises(IntegrityError):
            await add(database, table, {**row, "id": id})
    assert await num_rows(database, table) == 1


async def test_usage_has_one_row_of_each_day_run_caller_and_model(database: AsyncEngine) -> None:
    await add(database, USAGE, USED, {**USED, "day": 2}, {**USED, "model": ""})
    with pytest.raises(IntegrityError):
        await add(database, USAGE, USED)
    assert await num_rows(database, USAGE) == 3


async def test_an_agent_has_one_cordon(database: AsyncEngine) -> None:
    await add(database, CORDONS, CORDON, {**CORDON, "agent": "b"})
    with pytest.raises(IntegrityError):
        await add(database, CORDONS, CORDON)
    assert await num_rows(database, CORDONS) == 2
