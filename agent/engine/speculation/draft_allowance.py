"""The time that a draft model may lose: whatever was predicted, it never costs much more than that.

Computing drafts takes time from it, tokens that were right bring time back, and a small part of the
time that steps take is added. So what is lost to a draft model that is no good is a few steps at
first, and `EARNED` of the time afterwards, which is spent on finding out whether it is now.
"""

EARNED = 0.01
"""The part of the time of steps that may be lost."""

MOST = 10.0
"""Most that may be lost at once, in steps; so much is there at the beginning."""

PROBING = 0.5
"""The part of the most at which a draft model that did not pay is tried again."""


class DraftAllowance:
    """In seconds. Before the first `renew` there is none."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._most: float | None = None

    @property
    def is_spent(self) -> bool:
        """Whether no time is left."""
        return self.seconds <= 0

    @property
    def may_probe(self) -> bool:
        """Whether enough is left to try what is not thought to pay."""
        return self._most is not None and self.seconds >= PROBING * self._most > 0

    def renew(self, step: float) -> None:
        """A step of `step` seconds, without drafts, comes next."""
        if self._most is None:
            self.seconds = MOST * step
        self._most = MOST * step
        self.add(EARNED * step)

    def add(self, seconds: float) -> None:
        """So much was saved, or lost if negative. No more is kept than could be lost at once."""
        self.seconds = min(self.seconds + seconds, self._most or 0.0)
