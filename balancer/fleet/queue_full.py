"""Refusals of requests that would wait: the queue is full, or would be too slow.

Only `refusal_of` makes the error `queue_full`. Requests and queries call it with what they know
about a wait.

A new request is refused if the queue is full, unless another request is dropped for it
(`requests/dispatch/load_shedding.py`).

Deadline admission: a new request is also refused if it would wait too long, as far as known.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from ...shared.errors import QueueFull

RETRY_AFTER = 1.0
"""Default seconds after which a client that found the queue full may try again."""

LONGEST_ADMITTED = 3.0
"""A new request is refused if it would wait longer than this many times its allowed wait."""

ENOUGH = 10
"""Requests of a model that must have ended before their durations can refuse new requests."""

ENOUGH_FOR_DEADLINE = 3
"""The same for new requests with a deadline of their own."""

PLURALS = {"request": "requests", "query": "queries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The expected wait of a new request that no agent starts at once.

    - `num_before` requests wait already, of at most `most`; `position` is the place of the new
      one.
    - `seconds`: the expected time until it gets a slot, 0 if unknown; it may wait for `longest`.
    - `deadline_ms`: the answer is useless after this time.
    - `has_to_go`: a waiting request is dropped for callers with fewer requests in the queue.
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
        """Whether the answer would come after its deadline."""
        return self.deadline_ms is not None and self.seconds * 1000 > self.deadline_ms

    @property
    def is_too_long(self) -> bool:
        """Whether the request would wait far longer than allowed."""
        return self.seconds > LONGEST_ADMITTED * self.longest


def refusal_of(wait: Wait) -> QueueFull | None:
    """Return the error if the request may not wait, or no longer; `None` if it may."""
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
    """Return how many requests of the model must have ended before one may be refused."""
    return ENOUGH if deadline_ms is None else ENOUGH_FOR_DEADLINE
