"""Of requests that ended before nobody knows which balancer had them."""

from sqlalchemy import text

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.records import EndingFilter
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.migrations.versions.reverted import revert

ENDED = """
INSERT INTO ended_requests (id, ended_at, kind, code, caller, prompt_tokens, cached_tokens,
  completion_tokens, reasoning_tokens, queue_ms, total_ms)
VALUES ('r', 1.5, 'generate', 'stop', 'anonymous', 0, 0, 0, 0, 0.0, 1.0)
"""


async def test_ended_requests_stay(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await revert(connection, "0011")
        await connection.execute(text(ENDED))
    store = await opened_sql()
    found, _ = await store.find_endings(EndingFilter())
    assert [(each.id, each.balancer) for each in found] == [("r", None)]
    await engine.dispose()
