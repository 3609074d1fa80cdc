"""Pauses before dialling again: exponential backoff with full jitter.

Full jitter (any time from zero to the ceiling) keeps the agents of a fleet from reconnecting all at
once.
"""

FIRST_CEILING = 0.1
LAST_CEILING = 5.0
REFUSED_CEILING = 60.0
"""Of a key that the balancer does not take: a person has to do something first."""


class Backoff:
    """The pauses between attempts, in seconds."""

    def __init__(self) -> None:
        self._ceiling = FIRST_CEILING

    def next_pause(self, jitter: float) -> float:
        """The next pause in seconds; `jitter` is uniform in [0, 1)."""
        pause = self._ceiling * jitter
        self._ceiling = min(self._ceiling * 2, LAST_CEILING)
        return pause

    def refused(self, jitter: float) -> float:
        """The pause after a refused key: between half of `REFUSED_CEILING` and all of it."""
        self._ceiling = LAST_CEILING
        return REFUSED_CEILING * (1 + jitter) / 2

    def reset(self) -> None:
        """An attempt succeeded."""
        self._ceiling = FIRST_CEILING
