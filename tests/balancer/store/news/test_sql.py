"""That PostgreSQL's sessions hear it is tested in `peers/test_postgres`."""

from arriero.balancer.store.news.sql import tell_changed
from tests.balancer.store.conftest import OpenStore


async def test_both_databases_take_it(opened_sql: OpenStore) -> None:
    store = await opened_sql()
    async with store.database.transaction() as connection:
        await tell_changed(connection, "keys")
