from pathlib import Path

from arriero.balancer.access.access import Access
from arriero.balancer.admission import keeper_of
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.steering.drains import DrainKeeper
from arriero.balancer.management.steering.keeper import DesiredStateKeeper
from arriero.balancer.peering import open_peers
from arriero.balancer.peers.peers import Peers
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.url import parse_store_url
from tests.balancer.management.conftest import metrics, runtime
from tests.balancer.store.conftest import postgres
from tests.balancer.store.postgres import PostgresServer

__all__ = ["metrics", "postgres", "runtime"]


def opened(persistence: Persistence, runtime: FleetRuntime) -> Peers | None:
    return open_peers(
        "here",
        persistence,
        runtime,
        keeper=DesiredStateKeeper(runtime, persistence.writer.persist),
        drains=DrainKeeper(runtime, persistence.cordons),
        keys=keeper_of(Access(), persistence),
    )


async def test_a_file_has_one_balancer(tmp_path: Path, runtime: FleetRuntime) -> None:
    persistence = await Persistence.open(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    assert opened(persistence, runtime) is None
    await persistence.close()


async def test_postgresql_has_several(postgres: PostgresServer, runtime: FleetRuntime) -> None:
    persistence = await Persistence.open(parse_store_url(postgres.database()))
    peers = opened(persistence, runtime)
    assert peers is not None and not peers.status().is_connected
    await persistence.close()
