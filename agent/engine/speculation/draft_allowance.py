"""The time that a drafter may lose: whatever was predicted, it never costs much more than that.

What a drafter takes is paid from it: making proposals, and computing them with steps. Tokens that
were right bring time back, and a small part of the time that steps take is added. So a drafter that
is no good loses `FIRST` steps at the beginning, and its part of the time afterwards, which is spent
on finding out whether it is good now.
"""

EARNED = 0.005
"""The part of the time of steps that a drafter may lose."""

FIRST = 2.0
"""So many steps may be lost before any was earned."""

MOST = 10.0
"""Most that may be lost at once, in steps: so much can be saved up."""


class DraftAllowance:
    """In seconds. Of steps of unknown length nothing is earned, and nothing is spent on them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._most = 0.0
        self._goal = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether more was lost than there was."""
        return self.seconds < 0

    @property
    def may_try(self) -> bool:
        """Whether there is enough for what it was to `save_for`."""
        return self.seconds >= min(self._goal, self._most)

    def save_for(self, seconds: float) -> None:
        """The next try is to wait until there are so many, or as many as can be saved up."""
        self._goal = seconds

    def renew(self, step: float) -> None:
        """A step of `step` seconds, without drafts, comes next; 0: nobody knows."""
        if not step:
            return
        if not self._most:
            self.seconds += FIRST * step
        self._most = MOST * step
        self.add(EARNED * step)

    def add(self, seconds: float) -> None:
        """So much was saved, or lost if negative. No more is kept than could be lost at once."""
        self.seconds = min(self.seconds + seconds, self._most)
