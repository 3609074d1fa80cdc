import pytest

from arriero.client.errors import ArrieroError, RequestFailed, Unreachable
from arriero.client.retries import NEVER, Retries

FULL = RequestFailed("queue_full", "full", status=503, is_retryable=True)


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (FULL, True),
        (Unreachable("gone"), True),
        (RequestFailed("invalid_request", "wrong", status=400), False),
        (ArrieroError("else"), False),
    ],
)
def test_only_where_it_is_safe_and_may_help(error: ArrieroError, helps: bool) -> None:
    assert (Retries().pause(0, error, 0.5) is not None) is helps
    assert NEVER.pause(0, error, 0.5) is None


def test_pauses_double_up_to_the_last() -> None:
    retries = Retries(limit=5, first_pause=1, last_pause=5)
    pauses = [retries.pause(attempt, FULL, 0.5) for attempt in range(6)]
    assert pauses == [1, 2, 4, 5, 5, None]


def test_pauses_vary_by_half() -> None:
    retries = Retries(first_pause=1)
    assert [retries.pause(0, FULL, jitter) for jitter in (0, 1)] == [0.75, 1.25]


def test_the_balancer_knows_better_within_bounds() -> None:
    def after(seconds: float) -> float | None:
        error = RequestFailed("full", "full", is_retryable=True, retry_after=seconds)
        return Retries(last_pause=8).pause(0, error, 0.5)

    assert (after(3), after(3600)) == (3, 8)


def test_a_model_that_is_loaded_again_too_late_is_not_waited_for() -> None:
    def after(seconds: float) -> float | None:
        error = RequestFailed("model_failed", "", is_retryable=True, retry_after=seconds)
        return Retries(last_pause=8).pause(0, error, 0.5)

    assert (after(3), after(30)) == (3, None)


def test_who_has_patience_waits_for_room_and_not_for_a_miracle() -> None:
    retries = Retries(limit=1, patience=50, last_pause=3)
    nobody, lost = Unreachable("no", was_sent=False), RequestFailed("x", "", is_retryable=True)
    assert [retries.pause(49, error, 0.5) for error in (FULL, nobody)] == [3, 3]
    assert [retries.pause(50, error, 0.5) for error in (FULL, nobody)] == [None, None]
    assert [retries.pause(1, error, 0.5) for error in (lost, Unreachable("x"))] == [None, None]
