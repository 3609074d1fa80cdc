"""Steps of the version before stay, and balancers of that version may go on to write some."""

from sqlalchemy import text

from arriero.balancer.store.engine import engine_of
from arriero.balancer.store.records import SavedStep, StepRange
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.conftest import OpenSql
from tests.balancer.store.migrations.versions.reverted import revert

OLD = "INSERT INTO history_steps (width, at, document) VALUES (1, {}, 'd') ON CONFLICT DO NOTHING"


async def test_steps_stay(opened_sql: OpenSql, url: str) -> None:
    await opened_sql()
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        await revert(connection, "0009")
        await connection.execute(text(OLD.format(7)))
    store = await opened_sql()
    async with engine.begin() as connection:
        await connection.execute(text(OLD.format(8)))
    await store.append_history([SavedStep(1, 8, "e", "run")], [])
    assert await store.load_steps(StepRange(1, 0)) == [
        SavedStep(1, 7, "d"),
        SavedStep(1, 8, "e", "run"),
        SavedStep(1, 8, "d"),
    ]
    await engine.dispose()
