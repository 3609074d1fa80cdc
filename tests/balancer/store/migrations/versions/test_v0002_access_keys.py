"""Keys come to a database of the first schema, which keeps what it has."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from arriero.balancer.store import migrate
from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.records import Persist, SavedState
from arriero.balancer.store.sql import SqlStore
from arriero.balancer.store.url import parse_store_url


def to_first_schema(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate._FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")


async def test_it_adds_keys_and_keeps_the_rest(url: str) -> None:
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await connection.run_sync(to_first_schema)
    await engine.dispose()
    old = SqlStore(parse_store_url(url))
    await old.save_desired_state(Persist(0, "state"))
    await old.close()
    store = SqlStore(parse_store_url(url))
    await store.open()
    assert await store.load_keys() == []
    assert await store.load_desired_state() == SavedState(1, "state")
    await store.close()
