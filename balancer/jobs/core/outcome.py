"""What the end of a line means: its result, or that it runs again.

What is not the line's fault (a full queue, its caller's limits, a balancer that stops, a key that
was replaced) never counts against it: it waits for as long as the batch may take. Other errors that
a retry can mend are tried `MAX_ATTEMPTS` times.
"""

from dataclasses import dataclass

from ....shared.errors import (
    ModelNotFound,
    Overloaded,
    QueueFull,
    QueueTimeout,
    RateLimited,
    RequestError,
    ShuttingDown,
    StoreUnavailable,
    Unauthorized,
)

MAX_ATTEMPTS = 3

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds before a line runs again; the pause doubles."""

_NO_ROOM = (RateLimited, QueueFull, Overloaded, ShuttingDown, StoreUnavailable, Unauthorized)
_NOT_ITS_FAULT = (*_NO_ROOM, QueueTimeout)


@dataclass(frozen=True, slots=True)
class Final:
    """What came is the line's result."""

    is_error: bool


@dataclass(frozen=True, slots=True)
class Again:
    """It runs again after `pause` seconds. `for_all`: so long its batch starts nothing else."""

    pause: float
    is_attempt: bool
    for_all: bool


Outcome = Final | Again


def judge(
    error: RequestError | None, *, num_attempts: int, num_refusals: int, model_may_come: bool
) -> Outcome:
    """`num_attempts` and `num_refusals` are those before this one.

    `model_may_come`: a model that nobody knows now may be known again.
    """
    if error is None:
        return Final(is_error=False)
    is_refusal = isinstance(error, _NOT_ITS_FAULT)
    is_refusal = is_refusal or (isinstance(error, ModelNotFound) and model_may_come)
    if is_refusal:
        pause = max(error.retry_after or 0.0, _pause(num_refusals))
        return Again(pause, is_attempt=False, for_all=isinstance(error, _NO_ROOM))
    if error.retryable and num_attempts + 1 < MAX_ATTEMPTS:
        return Again(_pause(num_attempts), is_attempt=True, for_all=False)
    return Final(is_error=True)


def _pause(number: int) -> float:
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(number, 10)))
