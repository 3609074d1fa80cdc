"""What records tell of themselves."""

from arriero.balancer.store.records import StoreStatus


def test_a_store_is_away_from_its_first_failure_on() -> None:
    assert not StoreStatus().is_away
    assert StoreStatus(away_since=0.0, problem="refused").is_away
