"""Ids and numbers that requests and events share, with their bounds.

A number from an agent has a range in its type, so that no single number can do harm. Sums of such
numbers fit into 64 bits, and computing with them neither overflows nor divides by zero. An agent
keeps its numbers within the ranges (`rate_of`, `within`).
"""

from typing import Annotated, NewType

from pydantic import Field

RequestId = NewType("RequestId", str)
AgentId = NewType("AgentId", str)

Count = Annotated[int, Field(ge=0)]
"""A number that a balancer counts, without an upper bound."""

MAX_COUNT = 2**31 - 1
NumTokens = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""Tokens of one request or text, as an agent counts them."""

LEAST_RATE = 1e-3
MOST_RATE = 1e7
Rate = Annotated[float, Field(ge=LEAST_RATE, le=MOST_RATE)]
"""A number a second, or an average number of sequences."""

MOST_SECONDS = 1e9
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
"""A duration in seconds, or a sum of durations, of up to thirty years."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]

MAX_TOP_LOGPROBS = 20


def within(value: float, least: float, most: float) -> float:
    """Return `value` cut to the range from `least` to `most`; NaN gives `least`."""
    return min(max(least, value), most)


def rate_of(amount: float, seconds: float | None) -> float | None:
    """Return `amount` per second as a `Rate`; `None` if either number is not above 0."""
    if not seconds or seconds <= 0 or amount <= 0:
        return None
    return within(amount / max(seconds, amount / MOST_RATE), LEAST_RATE, MOST_RATE)
