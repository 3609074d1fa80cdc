"""Files and batches are kept where the rest is."""

from pathlib import Path

from arriero.balancer.store.jobs.memory import MemoryJobs
from arriero.balancer.store.jobs.open import job_store_of
from arriero.balancer.store.jobs.sql import SqlJobs
from arriero.balancer.store.open import open_store
from arriero.balancer.store.url import parse_store_url


async def test_in_memory() -> None:
    assert isinstance(job_store_of(await open_store(parse_store_url("memory://"))), MemoryJobs)


async def test_in_the_database(tmp_path: Path) -> None:
    opened = await open_store(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    store = job_store_of(opened)
    assert isinstance(store, SqlJobs)
    assert await store.open_batches() == []
    await opened.state.close()
