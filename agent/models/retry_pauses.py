"""How long to wait after a failed attempt: short where a look costs little, long where it costs.

Agents whose attempts failed at the same time make the next ones at different times, so that a
server that comes back is not asked by all of them at once.
"""

SOON = (5.0, 60.0)
"""First and longest pause, in seconds, where a look costs little: the network, disks, tokens."""

LATER = (60.0, 3600.0)
"""Where each attempt may download the whole file, or load the whole model, again."""

COSTLY = frozenset({"wrong_checksum", "torn", "not_a_gguf", "load_failed"})

SPREAD = 0.5
"""A pause is shorter than the full one by up to this part of it."""


def pause_after(code: str, last: float) -> float:
    """Seconds until the next attempt after an issue with this code, at most.

    Pauses double; `last` was the one before, 0 if there was none.
    """
    first, longest = LATER if code in COSTLY else SOON
    return min(max(2 * last, first), longest)


def spread(pause: float, jitter: float) -> float:
    """A part of `pause` that depends on `jitter`, which is uniform in [0, 1)."""
    return pause * (1 - SPREAD * jitter)
