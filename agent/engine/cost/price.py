"""What one of something takes, or how often it is so: a ratio of two sums that decay."""


class Price:
    """The amount for each one; each observation keeps a part `forgetting` of those before it.

    At first it is what is `assumed`, which counts as `weight` observed ones; without a weight
    nothing is known.
    """

    __slots__ = ("_amount", "_count", "_forgetting")

    def __init__(self, *, forgetting: float, assumed: float = 0.0, weight: float = 0.0) -> None:
        self._forgetting = forgetting
        self._amount, self._count = weight * assumed, weight

    @property
    def is_known(self) -> bool:
        """Whether anything was observed or assumed."""
        return self._count > 0

    @property
    def value(self) -> float:
        """The amount for one; 0 if nothing is known."""
        return self._amount / self._count if self._count else 0.0

    def observe(self, amount: float, count: float = 1.0) -> None:
        """So many took `amount`."""
        self._amount = self._forgetting * self._amount + amount
        self._count = self._forgetting * self._count + count
