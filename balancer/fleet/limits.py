"""Bounds of waiting requests, time limits, and the choice of agents."""

from dataclasses import dataclass

from ..access.identity import NO_LIMITS, CallerLimits

FIRST_SLOTS = 4
"""Requests that a new agent may have at once: the default number of slots.

The number doubles with each first token: 64 slots are all in use after the first four answers
began.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a fleet. Times are in seconds.

    A `max_buffered_requests` of 0 turns queueing off. `request_memory` is the maximum bytes that
    waiting and running requests may use. `model_memory` is the time for which a model stays known
    after its last agent left. `keys` are the limits of access keys without limits of their own;
    `anonymous` are the limits of callers without a key. `first_slots` is the number of requests
    that a new agent may have at once (`circuit_breaker.py`). `routing` names a policy
    (`routing/policies/`). Only `http_hosts` may send model files to agents without TLS.
    """

    max_buffered_requests: int = 256
    request_memory: int = 512 * 2**20
    buffered_request_timeout: float = 30.0
    first_token_timeout: float = 120.0
    token_timeout: float = 30.0
    request_timeout: float = 600.0
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 5.0
    model_memory: float = 600.0
    first_slots: int = FIRST_SLOTS
    routing: str = "cost"
    keys: CallerLimits = NO_LIMITS
    anonymous: CallerLimits = NO_LIMITS
    http_hosts: tuple[str, ...] = ()
