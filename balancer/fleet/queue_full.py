"""Decides whether a new request may wait, and creates the error `queue_full` if it may not.

A new request is refused if the queue is full, unless another request is dropped for it
(`requests/dispatch/load_shedding.py`).

A new request is also refused if its expected wait is too long or ends after its deadline.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from ...shared.errors import QueueFull

RETRY_AFTER = 1.0
"""The default seconds after which a client may try again after `queue_full`."""

LONGEST_ADMITTED = 3.0
"""A request is refused if its expected wait is this many times longer than allowed."""

ENOUGH = 10
"""The requests of a model that must have ended before an expected wait can refuse a request."""

ENOUGH_FOR_DEADLINE = 3
"""The same number for requests with a deadline."""

PLURALS = {"request": "requests", "query": "queries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The expected wait of a new request.

    - `num_before`: the number of waiting requests; at most `most` may wait.
    - `position`: the place of the new request in the queue.
    - `seconds`: the expected wait for a slot; 0 if unknown. The request may wait `longest`
      seconds.
    - `deadline_ms`: the time after which the answer is useless.
    - `has_to_go`: the queue drops this waiting request for a caller with fewer requests.
    """

    num_before: int = 0
    most: float = inf
    one: Literal["request", "query"] = "request"
    position: int | None = None
    seconds: float = 0.0
    longest: float = inf
    deadline_ms: int | None = None
    has_to_go: bool = False
    retry_after: float = RETRY_AFTER

    @property
    def is_full(self) -> bool:
        """Whether the queue is full."""
        return self.num_before >= self.most

    @property
    def is_after_deadline(self) -> bool:
        """Whether the answer would come after the request's deadline."""
        return self.deadline_ms is not None and self.seconds * 1000 > self.deadline_ms

    @property
    def is_too_long(self) -> bool:
        """Whether the expected wait is far longer than the allowed wait."""
        return self.seconds > LONGEST_ADMITTED * self.longest


def refusal_of(wait: Wait) -> QueueFull | None:
    """Return the error if the request may not wait any longer, or `None` if it may."""
    field, retry_after, position = None, wait.retry_after, wait.position
    if wait.has_to_go:
        why = (
            "the queue is full, and this caller has most of its requests, so requests of other "
            "callers were let in"
        )
    elif wait.is_full and not wait.most and wait.one == "request":
        why = "no slot is free, and queueing is off"
    elif wait.is_full:
        num, many = wait.num_before, PLURALS[wait.one]
        waiting = f"{num} {many} are" if num != 1 else f"1 {wait.one} is"
        why = f"{waiting} waiting, which is the limit"
    elif wait.is_after_deadline:
        field, retry_after = "deadline_ms", wait.seconds
        why = (
            f"`deadline_ms`: at place {position} in the queue a slot will be free in about "
            f"{wait.seconds:.1f} s; {wait.deadline_ms} ms are too few"
        )
    elif wait.is_too_long:
        why = (
            f"at place {position} in the queue a slot would be free in about "
            f"{wait.seconds:.0f} s; requests may wait at most {wait.longest:g} s"
        )
    else:
        return None
    return QueueFull(why, field=field, retry_after=retry_after, position=position)


def least_ended(deadline_ms: int | None) -> int:
    """Return how many requests of a model must have ended before a wait can refuse a request."""
    return ENOUGH if deadline_ms is None else ENOUGH_FOR_DEADLINE
