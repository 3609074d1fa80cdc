"""How the store is, by what those see who write to it."""

from arriero.balancer.store.health import LOST, WriteHealth, combined, issues
from arriero.balancer.store.records import StoreStatus
from arriero.shared.messages import Issue


def test_a_store_that_goes_away_and_comes_back() -> None:
    health = WriteHealth()
    assert not health.wrote()
    assert health.went_away("refused", 7.0)
    assert not health.went_away("gone", 9.0), "that is known"
    assert health.status(3) == StoreStatus(7.0, "gone", num_pending=3)
    assert health.wrote()
    assert health.status() == StoreStatus()


def test_a_failed_write_is_seen_until_one_succeeds() -> None:
    health = WriteHealth()
    health.failed(2)
    assert not health.answered()
    assert health.status() == StoreStatus(num_dropped=2, fault=LOST)
    health.wrote()
    assert health.status() == StoreStatus(num_dropped=2)


def test_the_store_is_as_bad_as_the_worst_find_it() -> None:
    well, failing = StoreStatus(num_pending=1), StoreStatus(num_dropped=2, fault=LOST)
    assert combined([]) == StoreStatus()
    assert combined([well, failing]) == StoreStatus(num_pending=1, num_dropped=2, fault=LOST)
    late, early = StoreStatus(9.0, "gone"), StoreStatus(0.0, "refused")
    assert combined([well, late, early]) == StoreStatus(0.0, "refused", num_pending=1)


def test_operators_are_given_an_issue() -> None:
    assert issues(StoreStatus()) == ()
    [away] = issues(StoreStatus(1.0, "refused", fault=LOST))
    assert (away.code, away.message) == ("store_away", "the store is away: refused")
    assert issues(StoreStatus(fault=LOST)) == (
        Issue(
            code="store_failing",
            message="the store does not take all that is written to it",
            hint=LOST,
        ),
    )
