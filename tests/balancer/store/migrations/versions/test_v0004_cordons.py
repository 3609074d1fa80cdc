"""A cordon is of one agent id."""

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.tables import CORDONS
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql

ROW = {"agent": "a", "name": "host", "since": 1.5}


async def test_one_row_of_each(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await connection.execute(insert(CORDONS), [ROW, {**ROW, "agent": "b"}])
    with pytest.raises(IntegrityError):
        async with engine.begin() as connection:
            await connection.execute(insert(CORDONS), [ROW])
    async with engine.begin() as connection:
        assert len((await connection.execute(select(CORDONS.c.name))).all()) == 2
    await engine.dispose()
