"""Pauses after failed attempts: short if the next attempt is cheap, otherwise long.

Pauses are spread at random, so that many agents do not ask a recovering server at the same time.
"""

SOON = (5.0, 60.0)
"""First and longest pause in seconds if an attempt is cheap: the network, disks, tokens."""

LATER = (60.0, 3600.0)
"""First and longest pause in seconds if each attempt may download or load the model again."""

COSTLY = frozenset({"wrong_checksum", "torn", "not_a_gguf", "not_a_model", "load_failed"})

SPREAD = 0.5
"""A pause may be shorter than the full pause by up to this share."""


def pause_after(code: str, last: float) -> float:
    """Return the maximum seconds until the next attempt after an issue with this code.

    Each pause is twice as long as `last`, the previous pause, which is 0 if there was none.
    """
    first, longest = LATER if code in COSTLY else SOON
    return min(max(2 * last, first), longest)


def spread(pause: float, jitter: float) -> float:
    """Return a random part of `pause`; `jitter` is uniform in [0, 1)."""
    return pause * (1 - SPREAD * jitter)


PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each retry. If every retry fails without a new byte, the download ends."""

MAX_ASKED = 60.0
"""Maximum wait that a server may ask for (`Retry-After`), in seconds."""

AFTER_ASKED = 5.0
"""Maximum seconds added to a server's `Retry-After`, which is the same for all clients."""


class Retries:
    """Counts the failures of one download since bytes last arrived."""

    def __init__(self) -> None:
        self._failures = 0

    def next_pause(
        self, *, made_progress: bool, jitter: float, asked: float | None = None
    ) -> float | None:
        """Return the seconds to wait before the next attempt; `None` means give up.

        `asked` is the server's `Retry-After`. `jitter` is uniform in [0, 1), so that downloads
        that were cut together do not resume together.
        """
        if made_progress:
            self._failures = 0
        if self._failures >= len(PAUSES):
            return None
        pause = PAUSES[self._failures]
        self._failures += 1
        least = min(asked or 0.0, MAX_ASKED)
        return least + jitter * AFTER_ASKED if least > pause else spread(pause, jitter)
