"""A linear cost model, fitted to noisy observations; the latest count most.

seconds = base + slope x count, by least squares on relative errors, neither part ever negative: a
negative price would make a budget infinite. Where the counts seen are all alike, a choice is left:
`lean` says which part of the price goes to the slope. All of it makes a line through zero, which
never promises too much; less of it dares to find out. An observation's weight halves with every
`log(2) / (1 - forgetting)` after it.

A step that took much longer than predicted usually means that the machine was busy with something
else: it counts as at most `MOST_SURPRISE` times the prediction. A second one in a row counts fully.
A line that `doubts` is for steps that are much alike: there less is a surprise, and after a second
one in a row, or after a step that took much less, what was learnt before counts little.
"""

FORGETTING = 0.95
MOST_SURPRISE = 2.0
LEAST_SURPRISE, LITTLE_SURPRISE = 0.75, 1.3
"""Below and above these parts of their prediction steps cast doubt on what was learnt before."""

DOUBT = 0.1
"""The weight that is left to what was learnt before."""

STIFFNESS = 0.02
"""How much the counts have to vary, against their mean, before they outweigh `lean`. Without it
noise alone would tilt the line when all counts are nearly the same."""


class LinearCost:
    """Learns from `observe`; before that every cost is 0."""

    __slots__ = (
        *("_doubts", "_forgetting", "_lean", "_stiffness", "_was_surprised", "is_known"),
        *("_sum_w", "_sum_x", "_sum_xx", "_sum_xy", "_sum_y"),
    )

    def __init__(
        self,
        *,
        forgetting: float = FORGETTING,
        stiffness: float = STIFFNESS,
        lean: float = 1.0,
        doubts: bool = False,
    ) -> None:
        self._doubts = doubts
        self.is_known = False
        self._forgetting = forgetting
        self._stiffness = stiffness
        self._lean = lean
        self._was_surprised = False
        self._sum_w = self._sum_x = self._sum_xx = self._sum_y = self._sum_xy = 0.0

    def observe(self, count: int, seconds: float) -> None:
        """`count` took `seconds`."""
        seconds = self._believed(count, seconds)
        self._weigh(self._forgetting)
        weight = 1 / (1 + count) ** 2
        x = weight * count
        self._sum_w += weight
        self._sum_x += x
        self._sum_xx += x * count
        self._sum_y += weight * seconds
        self._sum_xy += x * seconds
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
        """The highest count that costs no more than `seconds`; infinite where all are free.

        It is at least half of what a line through zero says: a base that a few slow steps have made
        out of nothing must not leave room for no count at all.
        """
        base, slope = self._fit()
        if not base and not slope:
            return float("inf")
        through_zero = seconds / (base + slope * self._mean_count) * self._mean_count
        if not slope and seconds >= base:
            return float("inf")
        fitting = (seconds - base) / slope if slope else 0.0
        return max(fitting, through_zero / 2)

    @property
    def _mean_count(self) -> float:
        return self._sum_x / self._sum_w

    def _weigh(self, factor: float) -> None:
        """Everything so far counts by `factor`."""
        self._sum_w *= factor
        self._sum_x *= factor
        self._sum_xx *= factor
        self._sum_y *= factor
        self._sum_xy *= factor

    def _believed(self, count: int, seconds: float) -> float:
        predicted = self.predict(count)
        most = (LITTLE_SURPRISE if self._doubts else MOST_SURPRISE) * predicted
        if not most:
            return seconds
        was_surprised, self._was_surprised = self._was_surprised, seconds > most
        is_doubtful = seconds < LEAST_SURPRISE * predicted or (seconds > most and was_surprised)
        if self._doubts and is_doubtful:
            self._weigh(DOUBT)
        return seconds if was_surprised else min(seconds, most)

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
