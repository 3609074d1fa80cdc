"""What the end of a line means."""

import pytest

from arriero.balancer.jobs.core.outcome import LONGEST_PAUSE, MAX_ATTEMPTS, Again, Final, judge
from arriero.shared.errors import (
    AgentLost,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    QueueFull,
    QueueTimeout,
    RateLimited,
    RequestError,
    ShuttingDown,
    TokenTimeout,
    Unauthorized,
)


def end(
    error: RequestError | None, *, attempts: int = 0, refusals: int = 0, may_come: bool = False
) -> Again | Final:
    return judge(error, num_attempts=attempts, num_refusals=refusals, model_may_come=may_come)


def test_an_answer_is_the_result() -> None:
    assert end(None) == Final(is_error=False)


def test_so_is_an_error_that_no_retry_mends() -> None:
    assert end(InvalidRequest("x")) == Final(is_error=True)
    assert end(ModelNotFound("x")) == Final(is_error=True)


@pytest.mark.parametrize("error", [AgentLost("x"), EngineFailed("x"), TokenTimeout("x")])
def test_what_a_retry_may_mend_is_tried_a_few_times(error: RequestError) -> None:
    for attempts in range(MAX_ATTEMPTS - 1):
        again = end(error, attempts=attempts)
        assert isinstance(again, Again)
        assert again.is_attempt
        assert not again.for_all
    assert end(error, attempts=MAX_ATTEMPTS - 1) == Final(is_error=True)


@pytest.mark.parametrize(
    "error",
    [
        *(RateLimited("x"), QueueFull("x"), ShuttingDown("x"), QueueTimeout("x")),
        *(Unauthorized("x"),),
    ],
)
def test_what_is_not_its_fault_never_counts(error: RequestError) -> None:
    again = end(error, attempts=MAX_ATTEMPTS, refusals=1000)
    assert isinstance(again, Again)
    assert not again.is_attempt
    assert again.pause == LONGEST_PAUSE
    assert again.for_all == (not isinstance(error, QueueTimeout))


def test_limits_say_how_long_to_wait() -> None:
    again = end(RateLimited("x", retry_after=45.0))
    assert isinstance(again, Again)
    assert again.pause == 45.0


def test_a_model_may_come_back() -> None:
    assert isinstance(end(ModelNotFound("x"), may_come=True), Again)


def test_pauses_grow() -> None:
    pauses = [
        again.pause for n in range(9) if isinstance(again := end(QueueFull("x"), refusals=n), Again)
    ]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
