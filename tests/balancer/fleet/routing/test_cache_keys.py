"""Which agent had the last request under a key."""

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.prefix_index import (
    FIRST_SHARE,
    LEAST_SHARE,
    CacheKeys,
    digest_of,
)

A, B = LinkId(1), LinkId(2)


def test_the_last_agent_is_remembered() -> None:
    keys = CacheKeys()
    assert keys.held(1) is None
    assert not keys.started(1, A), "nobody had a request before"
    assert keys.held(1) == (A, FIRST_SHARE)
    assert keys.started(1, A)
    assert not keys.started(1, B)
    assert keys.held(1) == (B, FIRST_SHARE)


def test_what_was_found_is_expected_again() -> None:
    keys = CacheKeys()
    keys.started(1, A)
    keys.found(1, 1.0)
    assert keys.held(1) == (A, (FIRST_SHARE + 1) / 2)
    for _ in range(20):
        keys.found(1, 0.0)
    assert keys.held(1) == (A, LEAST_SHARE), "of agents that cost the same it is taken"


def test_keys_are_bounded_and_those_not_used_for_longest_go() -> None:
    keys = CacheKeys(max_keys=2)
    for key in (1, 2, 1, 3):
        keys.started(key, A)
    assert [key for key in (1, 2, 3) if keys.held(key)] == [1, 3]
    assert len(keys) == 2
    keys.found(2, 1.0)  # it is gone
    assert keys.held(2) is None


def test_one_caller_with_many_keys_makes_its_own_be_forgotten() -> None:
    keys = CacheKeys(max_keys=4)
    keys.started(0, A, Caller("ben").account)
    for key in range(1, 20):
        keys.started(key, A, Caller("ana").account)
    assert [key for key in range(20) if keys.held(key)] == [0, 17, 18, 19]
    keys.pool.check_integrity()


def test_names_that_run_together_are_told_apart() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert digest_of("a", "", "b") != digest_of("a", "b")
    assert digest_of("\ud800") == digest_of("\ud800") < 2**64
