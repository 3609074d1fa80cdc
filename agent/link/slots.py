"""The agent's slots, shared by the sessions of all its balancers.

Invariant: no slot is taken while as many are busy as there are.
"""


class Slots:
    """`total` slots. The agent decides whether one is free; balancers only reserve."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.num_busy = 0

    @property
    def num_free(self) -> int:
        """How many more requests may be accepted."""
        return max(0, self.total - self.num_busy)

    def resize(self, total: int) -> None:
        """From now on there are `total`; if more are busy, those go on."""
        self.total = total

    def take(self) -> bool:
        """Take a slot. False: none is free."""
        if self.num_busy >= self.total:
            return False
        self.num_busy += 1
        return True

    def free(self) -> None:
        """Give a slot back."""
        if self.num_busy == 0:
            raise RuntimeError("a slot was freed that was not taken")
        self.num_busy -= 1
