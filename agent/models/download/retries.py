"""How long to wait before a cut download goes on, and when to give up."""

from ..retry_pauses import spread

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each retry; as many failures in a row without one new byte end the download."""

MAX_ASKED = 60.0
"""Longest wait that a server may ask for (`Retry-After`)."""

AFTER_ASKED = 5.0
"""Most seconds beyond what a server asked for, which it asks all of its clients."""


class Retries:
    """The failures of one download since bytes last arrived."""

    def __init__(self) -> None:
        self._failures = 0

    def next_pause(
        self, *, made_progress: bool, jitter: float, asked: float | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt; `None`: give up.

        `asked` is how long the server wants to be left alone. `jitter` is uniform in [0, 1), so
        that downloads which were cut together do not go on together.
        """
        if made_progress:
            self._failures = 0
        if self._failures >= len(PAUSES):
            return None
        pause = PAUSES[self._failures]
        self._failures += 1
        least = min(asked or 0.0, MAX_ASKED)
        return least + jitter * AFTER_ASKED if least > pause else spread(pause, jitter)
