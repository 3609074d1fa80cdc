"""A store of the version before gets the tables, empty."""

from sqlalchemy import text

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql


async def test_nothing_is_kept_at_first(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        for table in ("kept_events", "kept_requests"):
            await connection.execute(text(f"DROP TABLE {table}"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    store = await opened_sql()
    assert await store.kept.find_kept("") == []
    await engine.dispose()
