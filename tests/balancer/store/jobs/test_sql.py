"""Besides the contract (`test_port`): a restart, and any characters."""

from arriero.balancer.store.jobs.records import SavedBatch, SavedFile
from arriero.balancer.store.jobs.sql import SqlJobs
from tests.balancer.store.conftest import OpenSql


async def test_it_is_there_after_a_restart(opened_sql: OpenSql) -> None:
    store = SqlJobs((await opened_sql()).transaction)
    file = SavedFile(
        id="f", owner=None, name="a\0\ud800", purpose="batch", num_bytes=2**40, created_at=1.5
    )
    batch = SavedBatch(
        id="b", owner="ann", created_at=1.5, revision=1, is_open=True, document="ñ 🦙"
    )
    await store.add_file(file)
    await store.save_batch(batch)
    again = SqlJobs((await opened_sql()).transaction)
    found = await again.file("f")
    assert found is not None
    assert found.name.startswith("a\N{REPLACEMENT CHARACTER}")
    assert found.num_bytes == 2**40
    assert await again.batch("b") == batch


async def test_ids_that_nothing_can_have_are_not_found(opened_sql: OpenSql) -> None:
    store = SqlJobs((await opened_sql()).transaction)
    strange = "a\0\ud800"
    assert await store.file(strange) is None
    assert await store.batch(strange) is None
    assert await store.batches(None, after=strange, limit=1) == []
    assert await store.files(None, purpose=strange, after=strange, limit=1, order="asc") == []
