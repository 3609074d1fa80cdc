"""Ended requests that were written before count as not moved."""

from sqlalchemy import insert, select

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.tables import ENDED_REQUESTS
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql

COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
ROW = {"id": "r", "ended_at": 1.5, "kind": "generate", "code": "stop", "caller": "anonymous"}


async def test_none_unless_it_says_so(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    row = {**ROW, **dict.fromkeys(COUNTS, 0), "queue_ms": 0.0, "total_ms": 1.0}
    async with engine.begin() as connection:
        await connection.execute(insert(ENDED_REQUESTS), [row])
        assert list((await connection.execute(select(ENDED_REQUESTS.c.moves))).scalars()) == [0]
    await engine.dispose()
