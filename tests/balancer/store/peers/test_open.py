from pathlib import Path

import pytest

from arriero.balancer.store.open import open_store
from arriero.balancer.store.peers.open import peer_store_of
from arriero.balancer.store.peers.postgres import PostgresPeerStore
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.postgres import PostgresServer


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/state.db"])
async def test_a_store_of_one_balancer(url: str, tmp_path: Path) -> None:
    at = parse_store_url(url.format(folder=tmp_path))
    opened = await open_store(at)
    assert peer_store_of(at, opened) is None
    await opened.state.close()


async def test_a_store_that_several_share(postgres: PostgresServer) -> None:
    at = parse_store_url(postgres.database())
    opened = await open_store(at)
    assert isinstance(peer_store_of(at, opened), PostgresPeerStore)
    await opened.state.close()
