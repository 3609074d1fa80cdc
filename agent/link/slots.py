"""The agent's slots, shared by the sessions of all its balancers.

Invariant: no slot is taken while as many are busy as there are.
"""

from collections.abc import Callable


class Slots:
    """`total` slots. The agent decides whether one is free; balancers only reserve.

    None is free while what computes does not have room for anything new.
    """

    def __init__(self, total: int, has_room: Callable[[], bool] = lambda: True) -> None:
        self.total = total
        self.num_busy = 0
        self._has_room = has_room

    @property
    def num_free(self) -> int:
        """How many more requests may be accepted."""
        return max(0, self.total - self.num_busy) if self._has_room() else 0

    def resize(self, total: int) -> None:
        """From now on there are `total`; if more are busy, those go on."""
        self.total = total

    def take(self) -> bool:
        """Take a slot. False: none is free."""
        if not self.num_free:
            return False
        self.num_busy += 1
        return True

    def free(self) -> None:
        """Give a slot back."""
        if self.num_busy == 0:
            raise RuntimeError("a slot was freed that was not taken")
        self.num_busy -= 1
