"""Rows of the version before have no deadline, and no request of it is cancelled."""

from sqlalchemy import text

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.records import SavedCordon
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.migrations.versions.reverted import revert

KEPT = """
INSERT INTO kept_requests (id, owner, name, digest, document, created_at, used_at, has_ended,
  num_bytes, lease_owner, lease_until)
VALUES ('r', '', 'n', '', '{}', 1, 1, false, 2, '', 0)
"""


async def test_drains_and_kept_requests_stay(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await revert(connection, "0008")
        await connection.execute(
            text("INSERT INTO cordons (agent, name, since) VALUES ('a', 'h', 1)")
        )
        await connection.execute(text(KEPT))
    store = await opened_sql()
    assert await store.load_cordons() == [SavedCordon("a", "h", 1.0)]
    assert [each.is_cancelled for each in await store.kept.find_kept("")] == [False]
    await engine.dispose()
