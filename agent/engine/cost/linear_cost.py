"""A linear cost model, fitted to noisy observations; the latest observations count most.

seconds = base + slope x count, by least squares on relative errors. Neither part is ever negative:
a negative price would make a budget infinite. If all observed counts are alike, the data do not
determine the slope. Then `lean` is the share of the price that goes to the slope. A `lean` of 1
makes a line through zero, which never promises too much; a smaller `lean` explores. An
observation's weight halves with every `log(2) / (1 - forgetting)` later observations.

A step that took much longer than predicted usually means that the machine was busy with something
else. The step counts as at most `MOST_SURPRISE` times the prediction. A second such step in a row
counts fully. A line that `doubts` is for steps that are much alike. There smaller deviations count
as a surprise. After a second surprise in a row, or after a step that took much less, earlier
observations count little.
"""

FORGETTING = 0.95
MOST_SURPRISE = 2.0
LEAST_SURPRISE, LITTLE_SURPRISE = 0.75, 1.3
"""Steps outside these multiples of their prediction cast doubt on earlier observations."""

DOUBT = 0.1
"""The weight that remains for earlier observations."""

STIFFNESS = 0.02
"""The variation of counts, relative to their mean, above which the data outweigh `lean`.

Without this constant noise alone would tilt the line if all counts are nearly the same.
"""


class LinearCost:
    """A line learnt with `observe`; before that every cost is 0."""

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
        """Learn that `count` took `seconds`."""
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
        """Return the expected seconds for `count`."""
        base, slope = self._fit()
        return base + slope * count

    def share(self, count: int) -> float:
        """Return the share of the seconds for `count` that one additional unit takes."""
        seconds = self.predict(count)
        return self._fit()[1] / seconds if seconds else 0.0

    def most_within(self, seconds: float) -> float:
        """Return the highest count that costs at most `seconds`; infinite if all counts are free.

        The result is at least half of the result of a line through zero. Otherwise a few slow
        steps could raise the base until no count fits.
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
        """Multiply the weight of all observations so far by `factor`."""
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
        """Return base and slope."""
        if not self._sum_x:
            return 0.0, 0.0
        mean_x, mean_y = self._sum_x / self._sum_w, self._sum_y / self._sum_w
        variance = max(0.0, self._sum_xx / self._sum_w - mean_x * mean_x)
        covariance = self._sum_xy / self._sum_w - mean_x * mean_y
        stiffness = self._stiffness * mean_x * mean_x
        slope = (covariance + self._lean * stiffness * mean_y / mean_x) / (variance + stiffness)
        slope = min(max(slope, 0.0), mean_y / mean_x)
        return mean_y - slope * mean_x, slope
