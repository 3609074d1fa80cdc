"""The store and the history together, over a start, an end, and another start."""

import asyncio
from pathlib import Path

import pytest

from arriero.balancer.cluster.postgres_peers import PostgresPeerStore
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.persistence import Persistence, peer_store_of
from arriero.balancer.store.records import (
    EndingFilter,
    Persist,
    SavedState,
)
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import parse_store_url
from arriero.shared.lifecycle import StartupError
from tests.balancer.history.builders import TOTALS, ending
from tests.balancer.store.postgres import PostgresServer


async def life(url: str, id: str) -> list[str]:
    """A balancer's life with one request in it; the ended requests that it knows at its end."""
    persistence = await Persistence.open(parse_store_url(url))
    saved = await persistence.store.load_desired_state()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(persistence.run(lambda: TOTALS))
        persistence.history.recorder.tokens(3, Origin("ana", "tiny"))
        persistence.history.recorder.ended(ending(id))
        save = Persist(saved.revision if saved else 0, id)
        await persistence.store.save_desired_state(save)
        await persistence.flush(TOTALS)
        running.cancel()
    await persistence.close()
    return [each.id for each in persistence.history.endings.choose(EndingFilter())]


async def test_in_a_file_everything_is_there_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    assert await life(url, "first") == ["first"]
    assert await life(url, "second") == ["second", "first"]
    again = await Persistence.open(parse_store_url(url))
    assert await again.store.load_desired_state() == SavedState(2, "second")
    await again.close()


async def test_in_memory_everything_is_new() -> None:
    assert await life("memory://", "first") == ["first"]
    assert await life("memory://", "second") == ["second"]


async def test_a_store_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError) as error:
        await Persistence.open(parse_store_url(f"sqlite:///{tmp_path}/none/state.db"))
    assert str(error.value) == f"--state: there is no folder {tmp_path}/none; make it first"


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/state.db"])
async def test_a_store_of_one_balancer(url: str, tmp_path: Path) -> None:
    at = parse_store_url(url.format(folder=tmp_path))
    store = Store(at)
    assert peer_store_of(at, store) is None
    await store.close()


async def test_a_store_that_several_share(postgres: PostgresServer) -> None:
    at = parse_store_url(postgres.database())
    store = Store(at)
    assert isinstance(peer_store_of(at, store), PostgresPeerStore)
    await store.close()
