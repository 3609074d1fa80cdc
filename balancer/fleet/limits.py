"""How much may wait and how long anything may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds. `max_buffered_requests` of 0 turns queueing off.

    `model_memory` is how long a model that has gone counts as known.
    """

    max_buffered_requests: int = 256
    buffered_request_timeout: float = 30.0
    first_token_timeout: float = 120.0
    token_timeout: float = 30.0
    request_timeout: float = 600.0
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 5.0
    model_memory: float = 600.0
