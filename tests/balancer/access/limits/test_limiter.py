"""The accounts of all callers: whose limits count where, and which are forgotten."""

import pytest

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.limits import limiter as limiter_module
from arriero.balancer.access.limits.account import NO_STANDING, Demand, Level
from arriero.balancer.access.limits.limiter import Limiter
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.shared.inference import RequestId

ONE_A_MINUTE = CallerLimits(requests_per_minute=1)
ONE = Demand()


def send(limiter: Limiter, id: str, caller: Caller, now: float = 0.0) -> bool:
    if limiter.refusal(caller, ONE, now) is not None:
        return False
    limiter.admitted(RequestId(id), caller, ONE, now)
    limiter.check_integrity()
    return True


def test_each_key_has_its_own() -> None:
    limiter = Limiter()
    alice, bob = Caller("alice", limits=ONE_A_MINUTE), Caller("bob", limits=ONE_A_MINUTE)
    assert send(limiter, "a", alice)
    assert not send(limiter, "b", alice)
    assert send(limiter, "c", bob)


def test_without_limits_nobody_has_an_account() -> None:
    limiter = Limiter(keys=ONE_A_MINUTE)
    assert send(limiter, "a", ANONYMOUS)
    assert send(limiter, "b", ANONYMOUS)
    assert limiter.num_accounts == 0
    assert limiter.standing(ANONYMOUS, 0.0) == NO_STANDING
    limiter.ended(RequestId("a"), 10, 0.0)


def test_a_key_without_limits_has_those_of_keys() -> None:
    limiter = Limiter(keys=ONE_A_MINUTE)
    assert send(limiter, "a", Caller("alice"))
    assert not send(limiter, "b", Caller("alice"))
    two = Caller("bob", limits=CallerLimits(requests_per_minute=2))
    assert send(limiter, "c", two)
    assert send(limiter, "d", two)
    assert not send(limiter, "e", two)


def test_without_a_key_addresses_count() -> None:
    limiter = Limiter(anonymous=ONE_A_MINUTE)
    assert send(limiter, "a", Caller(address="10.0.0.1"))
    assert not send(limiter, "b", Caller(address="10.0.0.1", user_agent="another"))
    assert send(limiter, "c", Caller(address="10.0.0.2"))


def test_a_network_of_one_host_is_one_address() -> None:
    limiter = Limiter(anonymous=ONE_A_MINUTE)
    assert send(limiter, "a", Caller(address="2001:db8::1"))
    assert not send(limiter, "b", Caller(address="2001:db8::ffff:2"))
    assert send(limiter, "c", Caller(address="2001:db8:0:1::1"))
    assert send(limiter, "d", Caller(address="::ffff:10.0.0.1"))
    assert send(limiter, "e", Caller(address="::ffff:10.0.0.2"))
    assert send(limiter, "f", Caller(address="no:address"))


def test_what_was_used_counts_at_the_end() -> None:
    limiter = Limiter(anonymous=CallerLimits(tokens_per_minute=100))
    caller = Caller(address="10.0.0.1")
    demand = Demand(num_prompt_tokens=10, num_answer_tokens=50, has_max_tokens=True)
    limiter.admitted(RequestId("a"), caller, demand, 0.0)
    assert limiter.standing(caller, 0.0).tokens == Level(100, 40, 0.0)
    assert limiter.live(caller) == ["a"]
    limiter.ended(RequestId("a"), 15, 1.0)
    assert limiter.standing(caller, 1.0).tokens == Level(100, 85, 60.0)
    limiter.ended(RequestId("a"), 15, 1.0)
    assert limiter.standing(caller, 1.0).tokens == Level(100, 85, 60.0), "it ended once"
    assert limiter.live(caller) == []


def test_the_longest_unused_is_forgotten_and_never_one_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiter_module, "MAX_ACCOUNTS", 2)
    limiter = Limiter(anonymous=ONE_A_MINUTE, keys=ONE_A_MINUTE)
    assert send(limiter, "key", Caller("alice"))
    assert send(limiter, "runs", Caller(address="10.0.0.1"))
    assert send(limiter, "ended", Caller(address="10.0.0.2"))
    limiter.ended(RequestId("ended"), 0, 0.0)
    assert send(limiter, "newer", Caller(address="10.0.0.3"))
    assert limiter.num_accounts == 3
    assert not send(limiter, "x", Caller(address="10.0.0.1"))
    assert not send(limiter, "y", Caller("alice")), "addresses do not crowd out keys"
    assert send(limiter, "z", Caller(address="10.0.0.2"))


def test_of_two_balancers_each_lets_half_in_and_one_that_is_left_all_of_it() -> None:
    limiter = Limiter()
    alice = Caller("alice", limits=CallerLimits(requests_per_minute=4))
    limiter.num_balancers = 2
    assert [send(limiter, id, alice) for id in "abc"] == [True, True, False]
    limiter.num_balancers = 1
    assert [send(limiter, id, alice) for id in "cde"] == [True, True, False]
