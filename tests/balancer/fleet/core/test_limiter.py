"""The accounts of all callers: whose limits count where, and which are forgotten."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.access.identity import NO_LIMITS, CallerLimits
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core import limiter as limiter_module
from arriero.balancer.fleet.core.limiter import (
    GRAIN,
    SOON,
    SPAN,
    Grant,
    Limiter,
    SlidingWindow,
    UsageAccount,
)
from arriero.balancer.fleet.token_estimate import Reservation
from arriero.balancer.fleet.view import NO_STANDING, Level, Standing
from arriero.shared.errors import InvalidRequest, RateLimited, RequestError
from arriero.shared.inference import RequestId
from tests.balancer.fleet.builders import asking

ONE_A_MINUTE = CallerLimits(requests_per_minute=1)
ONE = Reservation()


GRANTS: dict[str, Grant] = {}


def grant(id: str, caller: Caller = ANONYMOUS) -> Grant:
    GRANTS[id] = Grant(asking(id, caller=caller))
    return GRANTS[id]


def send(limiter: Limiter, id: str, caller: Caller, now: float = 0.0) -> bool:
    if limiter.refusal(caller, limiter.limits_of(caller), ONE, now) is not None:
        return False
    limiter.admitted(grant(id, caller), ONE, now)
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
    limiter.ended(GRANTS["a"], 10, 0.0)


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
    reservation = Reservation(num_prompt_tokens=10, num_answer_tokens=50, has_max_tokens=True)
    limiter.admitted(grant("a", caller), reservation, 0.0)
    assert limiter.standing(caller, 0.0).tokens == Level(100, 40, 0.0)
    assert limiter.live(caller) == {GRANTS["a"]}
    limiter.ended(GRANTS["a"], 15, 1.0)
    assert limiter.standing(caller, 1.0).tokens == Level(100, 85, 60.0)
    assert not limiter.live(caller)


def test_the_longest_unused_is_forgotten_and_never_one_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiter_module, "MAX_ACCOUNTS", 2)
    limiter = Limiter(anonymous=ONE_A_MINUTE, keys=ONE_A_MINUTE)
    assert send(limiter, "key", Caller("alice"))
    assert send(limiter, "runs", Caller(address="10.0.0.1"))
    assert send(limiter, "ended", Caller(address="10.0.0.2"))
    limiter.ended(GRANTS["ended"], 0, 0.0)
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


def tokens(prompt: int, answer: int = 0, *, has_max_tokens: bool = True) -> Reservation:
    return Reservation(
        num_prompt_tokens=prompt, num_answer_tokens=answer, has_max_tokens=has_max_tokens
    )


def rate_limited(error: RequestError | None) -> RateLimited:
    assert isinstance(error, RateLimited)
    return error


def test_requests_of_a_minute() -> None:
    account, limits = UsageAccount(), CallerLimits(requests_per_minute=2)
    for id, now in (("a", 0.0), ("b", 10.0)):
        assert account.refusal(limits, ONE, now) is None
        account.admitted(grant(id), limits, ONE, now)
    error = rate_limited(account.refusal(limits, ONE, 20.0))
    assert error.retry_after == 40.0
    assert "2 requests a minute" in error.message
    assert "40.0 s" in error.message
    assert account.refusal(limits, ONE, 60.0) is None


def test_what_does_not_count_as_a_request() -> None:
    account, limits = UsageAccount(), CallerLimits(requests_per_minute=1)
    account.admitted(grant("a"), limits, ONE, 0.0)
    assert account.refusal(limits, Reservation(num_requests=0), 1.0) is None


def test_requests_at_once() -> None:
    account, limits = UsageAccount(), CallerLimits(max_concurrent=1)
    account.admitted(grant("a"), limits, ONE, 0.0)
    assert rate_limited(account.refusal(limits, ONE, 0.0)).retry_after == SOON
    account.ended(GRANTS["a"], 0, 0.0)
    assert account.refusal(limits, ONE, 0.0) is None


def test_tokens_are_held_until_the_end_and_what_was_not_used_is_given_back() -> None:
    account, limits = UsageAccount(), CallerLimits(tokens_per_minute=100)
    account.admitted(grant("a"), limits, tokens(20, 60), 0.0)
    error = rate_limited(account.refusal(limits, tokens(10, 20), 1.0))
    assert "20 of them are left" in error.message
    assert error.retry_after == SOON, "nobody knows when the running one ends"
    account.ended(GRANTS["a"], 25, 2.0)
    assert account.standing(limits, 2.0).tokens == Level(100, 75, SPAN)
    assert account.refusal(limits, tokens(10, 65), 2.0) is None
    error = rate_limited(account.refusal(limits, tokens(10, 66), 2.0))
    assert error.retry_after == SPAN


def test_what_no_waiting_helps_is_another_error() -> None:
    account, limits = UsageAccount(), CallerLimits(tokens_per_minute=100)
    error = account.refusal(limits, tokens(20, 90), 0.0)
    assert isinstance(error, InvalidRequest)
    assert error.field == "max_tokens"
    assert "at most 80" in error.message
    assert isinstance(account.refusal(limits, tokens(100, 1), 0.0), InvalidRequest)


def test_without_max_tokens_a_request_waits_for_the_whole_minute_at_most() -> None:
    account, limits = UsageAccount(), CallerLimits(tokens_per_minute=100)
    large = tokens(20, 1024, has_max_tokens=False)
    assert account.refusal(limits, large, 0.0) is None
    account.admitted(grant("a"), limits, large, 0.0)
    assert account.standing(limits, 0.0).tokens == Level(100, 0, 0.0)
    account.ended(GRANTS["a"], 30, 1.0)
    assert rate_limited(account.refusal(limits, large, 1.0)).retry_after == SPAN


def test_an_answer_longer_than_was_held_delays_the_next() -> None:
    account, limits = UsageAccount(), CallerLimits(tokens_per_minute=100)
    account.admitted(grant("a"), limits, tokens(10, 10), 0.0)
    account.ended(GRANTS["a"], 150, 1.0)
    assert account.standing(limits, 1.0).tokens == Level(100, 0, SPAN)
    assert account.refusal(limits, tokens(1, 1), 60.9) is not None
    assert account.refusal(limits, tokens(1, 1), 61.0) is None


def test_without_limits_there_is_nothing_to_tell() -> None:
    account = UsageAccount()
    assert account.refusal(NO_LIMITS, tokens(10**6, 10**6), 0.0) is None
    assert account.standing(NO_LIMITS, 0.0) == Standing()


def test_what_comes_together_needs_room_for_all() -> None:
    account = UsageAccount()
    limits = CallerLimits(requests_per_minute=3, max_concurrent=3, tokens_per_minute=100)
    account.admitted(grant("a"), limits, tokens(5, 5), 0.0)
    two, three = replace(tokens(5, 5), num_copies=2), replace(tokens(5, 5), num_copies=3)
    assert account.refusal(limits, two, 0.0) is None
    assert "3 requests at once" in rate_limited(account.refusal(limits, three, 0.0)).message
    account.ended(GRANTS["a"], 0, 0.0)
    error = rate_limited(account.refusal(limits, three, 0.0))
    assert "3 requests a minute" in error.message
    assert error.retry_after == SPAN
    assert account.refusal(limits, three, 60.0) is None
    large = replace(tokens(5, 45), num_copies=2)
    account.admitted(grant("b"), limits, tokens(5, 5), 60.0)
    assert "10" in rate_limited(account.refusal(limits, large, 60.0)).message


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (CallerLimits(max_concurrent=2), "at most 2 at a time"),
        (CallerLimits(requests_per_minute=2), "at most 2 at a time"),
        (CallerLimits(tokens_per_minute=90), "at most 20"),
        (CallerLimits(tokens_per_minute=30), "send fewer"),
    ],
)
def test_more_together_than_ever_fits(limits: CallerLimits, told: str) -> None:
    error = UsageAccount().refusal(limits, replace(tokens(10, 25), num_copies=3), 0.0)
    assert isinstance(error, InvalidRequest)
    assert told in error.message


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0625, 0.5, 7.0, 30.0, 60.0]),
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 30), st.integers(1, 60)),
            st.tuples(st.just("end"), st.integers(0, 5), st.integers(0, 100)),
        ),
    ),
    max_size=60,
)
LIMITS = st.builds(
    CallerLimits,
    requests_per_minute=st.none() | st.integers(1, 5),
    tokens_per_minute=st.none() | st.integers(50, 150),
    max_concurrent=st.none() | st.integers(1, 4),
)


@given(LIMITS, EVENTS)
def test_no_minute_has_more_than_the_limits_and_nothing_within_is_refused(
    limits: CallerLimits, events: list[tuple[float, tuple[str, int, int]]]
) -> None:
    account = UsageAccount()
    sent: list[float] = []
    used: list[tuple[float, int]] = []
    running: dict[RequestId, int] = {}
    now = 100.0
    for number, (pause, (kind, first, second)) in enumerate(events):
        now += pause
        if kind == "end" and running:
            id = sorted(running)[first % len(running)]
            num_tokens = running.pop(id) * second // 100
            account.ended(GRANTS[id], num_tokens, now)
            used.append((now, num_tokens))
        if kind == "send":
            reservation = tokens(first, second)
            error = account.refusal(limits, reservation, now)
            if error is None:
                id = RequestId(f"{number:03}")
                account.admitted(grant(id), limits, reservation, now)
                sent.append(now)
                running[id] = reservation.num_tokens
            else:
                assert is_over(limits, reservation, sent, used, running, now)
        account.check_integrity()
        check_minute(limits, sent, used, running, now)


def check_minute(
    limits: CallerLimits,
    sent: list[float],
    used: list[tuple[float, int]],
    running: dict[RequestId, int],
    now: float,
) -> None:
    """The minute that ends now; every minute ends at some time."""
    if limits.requests_per_minute is not None:
        assert sum(now - at < SPAN for at in sent) <= limits.requests_per_minute
    if limits.tokens_per_minute is not None:
        ended = sum(amount for at, amount in used if now - at < SPAN)
        assert ended + sum(running.values()) <= limits.tokens_per_minute
    if limits.max_concurrent is not None:
        assert len(running) <= limits.max_concurrent


def is_over(
    limits: CallerLimits,
    reservation: Reservation,
    sent: list[float],
    used: list[tuple[float, int]],
    running: dict[RequestId, int],
    now: float,
) -> bool:
    """Whether one more would be too much, for what left the window just now."""
    span = SPAN + GRAIN + 1e-9
    requests, most_tokens = limits.requests_per_minute, limits.tokens_per_minute
    held = sum(running.values()) + reservation.num_tokens
    return (
        (requests is not None and sum(now - at < span for at in sent) >= requests)
        or (limits.max_concurrent is not None and len(running) >= limits.max_concurrent)
        or (
            most_tokens is not None
            and held + sum(amount for at, amount in used if now - at < span) > most_tokens
        )
    )


EXACT = [0.0, 0.03125, 0.125, 1.0, 20.0, 59.875, 60.0]
"""Pauses that add up without rounding."""
STEPS = st.lists(
    st.tuples(st.sampled_from(EXACT), st.integers(0, 5)),
    max_size=40,
)


@given(STEPS)
def test_it_holds_the_last_minute_and_hardly_more(steps: list[tuple[float, int]]) -> None:
    window = SlidingWindow()
    added: list[tuple[float, int]] = []
    now = 100.0
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
        added.append((now, amount))
        within = sum(amount for at, amount in added if now - at < SPAN)
        with_grain = sum(amount for at, amount in added if now - at < SPAN + GRAIN)
        assert within <= window.used(now) <= with_grain


@given(STEPS, st.integers(0, 20))
def test_it_says_when_less_is_left(steps: list[tuple[float, int]], most: int) -> None:
    window = SlidingWindow()
    now = 100.0
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
    seconds = window.seconds_until(most, now)
    assert (seconds == 0) == (window.used(now) <= most)
    if seconds > 0.01:
        assert window.used(now + seconds - 0.01) > most
    assert window.used(now + seconds + 1e-6) <= most


def test_its_size_is_bounded_whatever_is_added() -> None:
    window = SlidingWindow()
    for number in range(20_000):
        window.add(1, number * 0.01)
    assert len(window) <= SPAN / GRAIN + 1


def test_it_is_empty_after_a_minute() -> None:
    window = SlidingWindow()
    window.add(5, 0.0)
    window.add(5, 10.0)
    assert window.seconds_until_empty(20.0) == 50.0
    assert window.used(60.0) == 5
    assert window.used(70.0) == 0


def test_what_came_together_leaves_with_the_last_of_it() -> None:
    window = SlidingWindow()
    window.add(1, 0.0)
    window.add(2, 0.0625)
    assert len(window) == 1
    assert window.used(60.03125) == 3
    assert window.used(60.0625) == 0
