"""Ids and numbers that requests and events share, and how large each may be.

What comes from an agent has a range in its type, so that one number can do no harm: sums of them
fit into 64 bits, and nothing that is computed of them overflows or is divided by zero. An agent
keeps what it sends within the ranges (`rate_of`, `within`).
"""

from typing import Annotated, NewType

from pydantic import Field

RequestId = NewType("RequestId", str)
AgentId = NewType("AgentId", str)

Count = Annotated[int, Field(ge=0)]
"""What a balancer counts; it has no bound but the sum of what agents say."""

MAX_COUNT = 2**31 - 1
NumTokens = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""Tokens of one request or text, as an agent counts them."""

LEAST_RATE = 1e-3
MOST_RATE = 1e7
Rate = Annotated[float, Field(ge=LEAST_RATE, le=MOST_RATE)]
"""How many of something a second, or sequences at once, on average."""

MOST_SECONDS = 1e9
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
"""A duration, or a sum of them, of up to thirty years."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]

MAX_TOP_LOGPROBS = 20


def within(value: float, least: float, most: float) -> float:
    """`value`, or the nearest bound; of what is no number, `least`."""
    return min(max(least, value), most)


def rate_of(amount: float, seconds: float | None) -> float | None:
    """`amount` in so many seconds, as a `Rate`; `None` where there was none."""
    if not seconds or seconds <= 0 or amount <= 0:
        return None
    return within(amount / max(seconds, amount / MOST_RATE), LEAST_RATE, MOST_RATE)
