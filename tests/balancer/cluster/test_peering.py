from pathlib import Path

from arriero.balancer.access.access import Access
from arriero.balancer.access.key_service import KeyService
from arriero.balancer.access.session_service import SessionService
from arriero.balancer.cluster.peer_store import Beat, Peer
from arriero.balancer.cluster.peering import balancers_of, open_peers
from arriero.balancer.cluster.peers import Peers, PeersStatus
from arriero.balancer.diary.diary import Diary
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.balancers import alone
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.management.steering.drains import DrainService
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.url import parse_store_url
from tests.balancer.management.conftest import metrics, runtime
from tests.balancer.store.postgres import PostgresServer

__all__ = ["metrics", "runtime"]


def opened(persistence: Persistence, runtime: FleetRuntime) -> Peers | None:
    return open_peers(
        "here",
        persistence,
        runtime,
        desired_state=DesiredStateService(runtime, persistence.store, persistence.writer.health),
        drains=DrainService(runtime, persistence.store),
        keys=KeyService(access := Access(), persistence.store),
        sessions=SessionService(access, persistence.store),
        diary=Diary(runtime, persistence.store),
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


class Reporting(Peers):
    """Knows what a test says."""

    def __init__(self, status: PeersStatus) -> None:
        self.told = status

    def status(self) -> PeersStatus:
        return self.told


def test_balancers_are_listed_as_the_store_told_last() -> None:
    one = Beat(run="r1", name="one", version="1", is_leading=True, url="https://one")
    two = Beat(run="r2", name="two", version="2")
    peers = (Peer(one, 0.5, 70.0), Peer(two, 1.0))
    told = Reporting(PeersStatus("r1", True, 3, peers, 0, 2.0))
    here, other = balancers_of(told, alone(), lambda: 100.0)()
    assert here == {
        "name": "one",
        "url": "https://one",
        "version": "1",
        "leads": True,
        "is_here": True,
        "since": 70.0,
        "last_heartbeat": 97.5,
    }
    assert (other["is_here"], other["leads"], other["since"]) == (False, False, None)
    assert other["last_heartbeat"] == 97.0
    told.told = PeersStatus("r2", True, 4, peers, 0, 0.0)
    assert [each["leads"] for each in balancers_of(told, alone())()] == [False, True], "since then"
    told.told = PeersStatus("r2", False, None, (), 0)
    assert balancers_of(told, alone())() == []


def test_a_balancer_without_others_is_listed_alone() -> None:
    lone = alone()
    assert balancers_of(None, lone) is lone
