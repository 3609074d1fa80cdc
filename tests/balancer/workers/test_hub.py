"""Workers of one parent: who lives, and who leads."""

from arriero.balancer.store.peers.port import Beat, Peer
from arriero.balancer.workers.hub import Hub

ONE, TWO = (Beat(run=name, name=name, version="1") for name in ("one", "two"))


def test_all_that_have_told_of_themselves_live() -> None:
    hub = Hub()
    assert hub.beat(1, TWO, 5.0, 1005.0) == (Peer(TWO, 0.0, 1005.0),)
    assert hub.beat(0, ONE, 6.0, 1006.0) == (Peer(ONE, 0.0, 1006.0), Peer(TWO, 1.0, 1005.0))
    hub.left(1)
    assert hub.beat(0, ONE, 7.0, 1007.0) == (Peer(ONE, 0.0, 1006.0),)


def test_one_leads_until_it_leaves_and_epochs_grow() -> None:
    hub = Hub()
    assert (hub.lead(0, 0), hub.lead(1, 9), hub.lead(0, 5)) == (1, None, 6)
    hub.left(1)
    assert hub.lead(1, 0) is None
    hub.left(0)
    assert hub.lead(1, 0) == 7
