"""Who is refused at once, since it would wait in vain."""

from arriero.balancer.fleet.requests.hopeless import (
    ENOUGH,
    ENOUGH_FOR_DEADLINE,
    HOPELESS,
    least_ended,
    refusal_of,
)
from arriero.shared.errors import QueueFull


def refusal(seconds: float, *, deadline_ms: int | None = None) -> QueueFull | None:
    return refusal_of(
        seconds, deadline_ms=deadline_ms, longest_wait=10.0, position=4, retry_after=7.0
    )


def test_a_deadline_needs_less_experience() -> None:
    assert (least_ended(None), least_ended(1000)) == (ENOUGH, ENOUGH_FOR_DEADLINE)
    assert ENOUGH_FOR_DEADLINE < ENOUGH


def test_a_slot_within_a_few_times_the_longest_wait_is_worth_waiting() -> None:
    assert refusal(HOPELESS * 10.0) is None
    error = refusal(HOPELESS * 10.0 + 1)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == (None, 4, 7.0)
    assert error.message == (
        "a slot would be free in about 31 s, at place 4; requests wait 10 s at most"
    )


def test_a_slot_after_the_deadline_is_of_no_use() -> None:
    assert refusal(2.5, deadline_ms=2500) is None
    error = refusal(2.6, deadline_ms=2500)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == ("deadline_ms", 4, 2.6)
    assert error.message == (
        "`deadline_ms`: a slot is free in about 2.6 s, at place 4; 2500 ms are too few"
    )


def test_a_long_deadline_makes_no_wait_longer() -> None:
    error = refusal(HOPELESS * 10.0 + 1, deadline_ms=86_400_000)
    assert error is not None
    assert error.field is None
