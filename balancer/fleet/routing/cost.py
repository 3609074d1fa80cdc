"""What it costs, in seconds, to give a request to an agent: its own time, and what others lose."""

from dataclasses import dataclass

from .rates import Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How an agent is: requests `running` in its `slots`, and `waiting` for it alone.

    Of prompts that were given to it before, `backlog` tokens are not computed yet. Where
    `is_cache_full`, what is computed takes the place of something else.
    """

    running: int
    slots: int
    has_free_slot: bool
    backlog: float = 0.0
    waiting: int = 0
    is_cache_full: bool = False


def seconds(
    load: Load, speed: Speed, *, uncached: float, answer: float, fetching: float = 0.0
) -> float:
    """Until `uncached` prompt tokens and an answer are computed, and what others lose by it.

    Before that, what is not computed takes `fetching` seconds, in which nobody else loses.

    Where a slot is free, that is: without `waiting_seconds`. Each sequence that runs besides waits
    while the prompt is computed, and its tokens come a little slower. Tokens that have to leave a
    full cache are computed again as often as others are reused.
    """
    running = load.running if load.has_free_slot else max(load.slots - 1, 0)
    prefill = uncached / speed.prefill
    alone = speed.seconds_per_token(running)
    together = speed.seconds_per_token(running + 1)
    ahead = load.backlog / speed.prefill if load.has_free_slot else 0.0
    own = fetching + ahead + prefill + answer * together
    others = running * (prefill + answer * (together - alone))
    evicted = prefill * speed.reuse if load.is_cache_full else 0.0
    return own + others + evicted


def waiting_seconds(load: Load, speed: Speed) -> float:
    """Until an agent has a free slot for the one who comes now."""
    if load.has_free_slot:
        return 0.0
    return speed.slot_seconds * (1 + load.waiting) / max(load.slots, 1)
