import pytest

from arriero.balancer.fleet.queue_full import (
    ENOUGH,
    ENOUGH_FOR_DEADLINE,
    LONGEST_ADMITTED,
    RETRY_AFTER,
    Wait,
    least_ended,
    refusal_of,
)
from arriero.shared.errors import QueueFull


def refusal(seconds: float, *, deadline_ms: int | None = None) -> QueueFull | None:
    return refusal_of(
        Wait(seconds=seconds, deadline_ms=deadline_ms, longest=10.0, position=4, retry_after=7.0)
    )


def test_a_deadline_needs_less_experience() -> None:
    assert (least_ended(None), least_ended(1000)) == (ENOUGH, ENOUGH_FOR_DEADLINE)
    assert ENOUGH_FOR_DEADLINE < ENOUGH


def test_a_slot_within_a_few_times_the_longest_wait_is_worth_waiting() -> None:
    assert refusal(LONGEST_ADMITTED * 10.0) is None
    error = refusal(LONGEST_ADMITTED * 10.0 + 1)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == (None, 4, 7.0)
    assert error.message == (
        "at place 4 in the queue a slot would be free in about 31 s; requests may wait at most 10 s"
    )


def test_a_slot_after_the_deadline_is_of_no_use() -> None:
    assert refusal(2.5, deadline_ms=2500) is None
    error = refusal(2.6, deadline_ms=2500)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == ("deadline_ms", 4, 2.6)
    assert error.message == (
        "`deadline_ms`: at place 4 in the queue a slot will be free in about 2.6 s; "
        "2500 ms are too few"
    )


def test_a_long_deadline_makes_no_wait_longer() -> None:
    error = refusal(LONGEST_ADMITTED * 10.0 + 1, deadline_ms=86_400_000)
    assert error is not None
    assert error.field is None


@pytest.mark.parametrize(("num", "told"), [(1, "1 query is"), (2, "2 queries are")])
def test_one_waits_and_two_wait(num: int, told: str) -> None:
    error = refusal_of(Wait(num_before=num, most=num, one="query"))
    assert error is not None
    assert error.message == f"{told} waiting, which is the limit"
    assert error.retry_after == RETRY_AFTER
    assert refusal_of(Wait(num_before=num - 1, most=num, one="query")) is None
