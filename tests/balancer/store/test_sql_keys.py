"""Besides the contract (`test_port`): no table has a key in it, only digests."""

from sqlalchemy import text

from arriero.balancer.access.saved_keys import saved
from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.url import parse_store_url
from tests.balancer.access.builders import record, secret
from tests.balancer.store.conftest import OpenSql


async def test_only_the_digest_is_in_the_database(opened_sql: OpenSql, url: str) -> None:
    await (await opened_sql()).save_key(saved(record("ci", 1)))
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        rows = (await connection.execute(text("SELECT * FROM access_keys"))).all()
    await engine.dispose()
    assert record("ci", 1).digest in str(rows)
    assert secret(1) not in str(rows)
