"""Usage has one row for each day, run, caller and model."""

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.tables import USAGE
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql

ROW = {
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


async def test_one_row_of_each(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await connection.execute(insert(USAGE), [ROW, {**ROW, "day": 2}, {**ROW, "model": ""}])
    with pytest.raises(IntegrityError):
        async with engine.begin() as connection:
            await connection.execute(insert(USAGE), [ROW])
    async with engine.begin() as connection:
        assert len((await connection.execute(select(USAGE.c.requests))).all()) == 3
    await engine.dispose()
