"""The first schema: nothing is saved, and there is one desired state."""

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.sql import SqlStore
from arriero.balancer.store.tables import DESIRED_STATE
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql


async def add_state(engine: AsyncEngine, id: int) -> None:
    async with engine.begin() as connection:
        values = {"id": id, "revision": 7, "document": "another"}
        await connection.execute(insert(DESIRED_STATE).values(values))


async def test_there_is_one_state(opened_sql: OpenSql, url: str) -> None:
    store: SqlStore = await opened_sql()
    engine = engine_of(parse_store_url(url))
    for id in (1, 2):
        with pytest.raises(IntegrityError):
            await add_state(engine, id)
    await engine.dispose()
    assert await store.load_desired_state() is None
