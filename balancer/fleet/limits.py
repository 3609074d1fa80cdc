"""The limits of a fleet: waiting requests, memory, times, and the routing policy."""

from dataclasses import dataclass

from ..access.identity import NO_LIMITS, CallerLimits

FIRST_SLOTS = 4
"""The requests that a new agent may have at once; equals the default number of slots.

Each first token doubles this limit, so an agent with 64 slots can use all of them after four
answers have begun.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a fleet. Times are in seconds.

    - `max_buffered_requests`: the maximum waiting requests; 0 turns queueing off.
    - `request_memory`: the maximum bytes of waiting and running requests.
    - `model_memory`: the seconds for which a model stays known after its last agent left.
    - `keys`: the limits of access keys without limits of their own.
    - `anonymous`: the limits of callers without a key.
    - `first_slots`: the requests that a new agent may have at once (`circuit_breaker.py`).
    - `routing`: the name of a policy (`routing/policies/`).
    - `http_hosts`: the only hosts from which agents may download model files without TLS.
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
