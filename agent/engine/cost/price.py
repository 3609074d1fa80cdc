"""A learnt price, such as seconds per byte or the share of right guesses."""


class Price:
    """The ratio of two decaying sums: amounts to counts.

    Each observation first multiplies both sums by `forgetting`. The price begins as `assumed`,
    which counts as much as `weight` observed units. Without a weight the price is unknown at
    first.
    """

    __slots__ = ("_amount", "_count", "_forgetting")

    def __init__(self, *, forgetting: float, assumed: float = 0.0, weight: float = 0.0) -> None:
        self._forgetting = forgetting
        self._amount, self._count = weight * assumed, weight

    @property
    def is_known(self) -> bool:
        """Return whether a price was observed or assumed."""
        return self._count > 0

    @property
    def value(self) -> float:
        """The amount per unit; 0 if unknown."""
        return self._amount / self._count if self._count else 0.0

    def observe(self, amount: float, count: float = 1.0) -> None:
        """Learn that `count` units took `amount`."""
        self._amount = self._forgetting * self._amount + amount
        self._count = self._forgetting * self._count + count
