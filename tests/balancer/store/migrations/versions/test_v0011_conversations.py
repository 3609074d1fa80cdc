"""A store of the version before gets the table, and it is empty."""

from sqlalchemy import text

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.migrations.versions.reverted import revert


async def test_nothing_was_saved_so_far(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await revert(connection, "0010")
    await opened_sql()
    async with engine.begin() as connection:
        assert (await connection.execute(text("SELECT id FROM conversations"))).all() == []
    await engine.dispose()
