"""What they do is tested in PostgreSQL (`test_postgres`)."""

from arriero.balancer.peers.peers import BEAT_INTERVAL
from arriero.balancer.store import migrate
from arriero.balancer.store.peers import statements


def test_the_leaders_lock_is_not_the_migrations() -> None:
    assert statements.LEADER_LOCK != migrate._LOCK
    assert statements.LEADER_LOCK < 2**63


def test_a_balancer_may_miss_beats() -> None:
    assert 3 * BEAT_INTERVAL <= statements.LIVE < statements.FORGOTTEN
