"""How long to wait after a failed attempt: short where the next one costs little, else long.

Agents whose attempts failed at the same time make the next ones at different times, so that a
server that comes back is not asked by all of them at once.
"""

SOON = (5.0, 60.0)
"""First and longest pause, in seconds, where an attempt is cheap: the network, disks, tokens."""

LATER = (60.0, 3600.0)
"""Where each attempt may download the whole file, or load the whole model, again."""

COSTLY = frozenset({"wrong_checksum", "torn", "not_a_gguf", "not_a_model", "load_failed"})

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
