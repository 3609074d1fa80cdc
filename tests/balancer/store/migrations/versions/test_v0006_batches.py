"""Files and batches come to a database that has none."""

from sqlalchemy import func, select

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.tables import BATCHES, CHUNKS, FILES
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql


async def test_there_are_none_at_first(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        for table in (FILES, BATCHES, CHUNKS):
            number = await connection.scalar(select(func.count()).select_from(table))
            assert number == 0
    await engine.dispose()
