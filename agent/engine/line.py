"""A straight line through noisy observations, the latest counting most.

seconds = base + slope x count, by least squares on relative errors, neither part ever negative: a
negative price would make a budget infinite. Where the counts seen are all alike, a choice is left:
`lean` says which part of the price goes to the slope. All of it makes a line through zero, which
never promises too much; less of it dares to find out. An observation's weight halves with every
`log(2) / (1 - forgetting)` after it.
"""

FORGETTING = 0.95
STIFFNESS = 0.02
"""How much the counts have to vary, against their mean, before they outweigh `lean`. Without it
noise alone would tilt the line when all counts are nearly the same."""


class Line:
    """Learns from `observe`; until then everything costs nothing."""

    __slots__ = (
        *("_forgetting", "_lean", "_stiffness", "is_known"),
        *("_sum_w", "_sum_x", "_sum_xx", "_sum_xy", "_sum_y"),
    )

    def __init__(
        self, *, forgetting: float = FORGETTING, stiffness: float = STIFFNESS, lean: float = 1.0
    ) -> None:
        self.is_known = False
        self._forgetting = forgetting
        self._stiffness = stiffness
        self._lean = lean
        self._sum_w = self._sum_x = self._sum_xx = self._sum_y = self._sum_xy = 0.0

    def observe(self, count: int, seconds: float) -> None:
        """`count` took `seconds`."""
        weight = 1 / (1 + count) ** 2
        x = weight * count
        self._sum_w = self._sum_w * self._forgetting + weight
        self._sum_x = self._sum_x * self._forgetting + x
        self._sum_xx = self._sum_xx * self._forgetting + x * count
        self._sum_y = self._sum_y * self._forgetting + weight * seconds
        self._sum_xy = self._sum_xy * self._forgetting + x * seconds
        self.is_known = True

    def predict(self, count: int) -> float:
        """Seconds for `count`."""
        base, slope = self._fit()
        return base + slope * count

    def share(self, count: int) -> float:
        """The part that one more has of the seconds for `count`."""
        seconds = self.predict(count)
        return self._fit()[1] / seconds if seconds else 0.0

    def most_within(self, seconds: float) -> float:
        """The highest count that costs no more than `seconds`; infinite where all are free."""
        base, slope = self._fit()
        if seconds < base:
            return 0.0
        return (seconds - base) / slope if slope else float("inf")

    def _fit(self) -> tuple[float, float]:
        """Base and slope."""
        if not self._sum_x:
            return 0.0, 0.0
        mean_x, mean_y = self._sum_x / self._sum_w, self._sum_y / self._sum_w
        variance = max(0.0, self._sum_xx / self._sum_w - mean_x * mean_x)
        covariance = self._sum_xy / self._sum_w - mean_x * mean_y
        stiffness = self._stiffness * mean_x * mean_x
        slope = (covariance + self._lean * stiffness * mean_y / mean_x) / (variance + stiffness)
        slope = min(max(slope, 0.0), mean_y / mean_x)
        return mean_y - slope * mean_x, slope
