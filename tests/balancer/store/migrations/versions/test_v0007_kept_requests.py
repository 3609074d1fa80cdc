"""A store of the version before gets the tables, empty."""

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.migrations.versions.reverted import revert


async def test_nothing_is_kept_at_first(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await revert(connection, "0006")
    store = await opened_sql()
    assert await store.kept.find_kept("") == []
    await engine.dispose()
