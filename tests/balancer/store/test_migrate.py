"""Schemas: brought up to date once, by one balancer at a time; a newer one is left alone."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from arriero.balancer.store.database import engine_of
from arriero.balancer.store.port import StoreRefused
from arriero.balancer.store.records import Persist, SavedState
from arriero.balancer.store.store import Store
from arriero.balancer.store.tables import FIRST_ROWS, METADATA
from arriero.balancer.store.url import parse_store_url

from .conftest import OpenStore


def differences(connection: Connection) -> list[object]:
    return list(compare_metadata(MigrationContext.configure(connection), METADATA))


async def test_the_migrations_lead_to_the_tables(opened_empty: OpenStore, empty_url: str) -> None:
    await opened_empty()
    engine = engine_of(parse_store_url(empty_url))
    async with engine.begin() as connection:
        assert await connection.run_sync(differences) == []
        await connection.execute(text("DROP INDEX ended_requests_by_time"))
        assert len(await connection.run_sync(differences)) == 1, "a difference would be seen"
    await engine.dispose()


async def test_the_migrations_leave_the_first_rows(opened_empty: OpenStore, empty_url: str) -> None:
    await opened_empty()
    engine = engine_of(parse_store_url(empty_url))
    async with engine.begin() as connection:
        found = {
            table.name: [dict(row) for row in (await connection.execute(table.select())).mappings()]
            for table in METADATA.sorted_tables
        }
    await engine.dispose()
    expected = {table.name: [dict(row)] for table, row in FIRST_ROWS}
    assert {name: rows for name, rows in found.items() if rows} == expected


async def test_balancers_that_start_together_wait_for_one_another(opened_empty: OpenStore) -> None:
    stores = await asyncio.gather(*(opened_empty() for _ in range(4)))
    await stores[0].save_desired_state(Persist(0, "state"))
    assert await stores[3].load_desired_state() == SavedState(1, "state")


async def test_one_that_makes_the_same_database_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = Store(parse_store_url(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(store.open())
        await asyncio.wait({opening}, timeout=0.3)
        assert not opening.done()
        other.execute("ROLLBACK")
    await opening
    await store.close()


async def test_a_start_keeps_what_is_there(opened_empty: OpenStore) -> None:
    await (await opened_empty()).save_desired_state(Persist(0, "state"))
    assert await (await opened_empty()).load_desired_state() == SavedState(1, "state")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("9.9.0", r"a newer version of Arriero wrote it \(schema 9.9.0\); install that version"),
        ("0012", r"a version from before 0.1.0 wrote it \(schema 0012\), .* delete it, or give"),
    ],
)
async def test_another_schema_is_refused_and_left_alone(
    opened_empty: OpenStore, empty_url: str, schema: str, sentence: str
) -> None:
    await (await opened_empty()).save_desired_state(Persist(0, "state"))
    engine = engine_of(parse_store_url(empty_url))
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{schema}'"))
    store = Store(parse_store_url(empty_url))
    with pytest.raises(StoreRefused, match=sentence):
        await store.open()
    await store.close()
    async with engine.begin() as connection:
        rows = await connection.execute(text("SELECT version_num FROM alembic_version"))
        assert rows.scalar_one() == schema
    await engine.dispose()
