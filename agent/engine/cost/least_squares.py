"""Non-negative least squares over a few features, fitted to noisy observations.

The value is the sum of prices times features; errors are relative to the expected value. No price
is ever negative. The weight of an observation decays with each later observation. If observations
do not distinguish features, penalties and ties decide.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

Matrix = list[list[float]]

ROUNDING = 1e-14
"""A coefficient below this share of the original coefficient is a rounding error."""


@dataclass(frozen=True, slots=True)
class Tie:
    """The assumption that feature `second` costs `ratio` times the price of `first`.

    `weight` is relative to the observations: with a weight of 1 the tie counts half.
    """

    first: int
    second: int
    ratio: float
    weight: float


class LeastSquares:
    """One price for each of `penalties`, learnt with `observe`; before that every price is 0.

    A penalty is relative to the observations of its feature: with 1 the penalty counts half.
    `ties` apply as far as the observations do not contradict them.
    """

    def __init__(
        self,
        penalties: Sequence[float],
        *,
        forgetting: float,
        ties: Sequence[Tie] = (),
    ) -> None:
        size = len(penalties)
        self._penalties = penalties
        self._ties = ties
        self._forgetting = forgetting
        self._squares: Matrix = [[0.0] * size for _ in range(size)]
        self._sums = [0.0] * size
        self._most = inf
        self._prices: list[float] | None = [0.0] * size

    def observe(self, features: Sequence[float], value: float, *, usual: float) -> None:
        """Learn that `features` cost `value`. `usual`, a positive number, is the expected cost."""
        relative = [feature / usual for feature in features]
        for i, row in enumerate(self._squares):
            self._sums[i] = self._sums[i] * self._forgetting + relative[i] * value / usual
            for j in range(len(row)):
                row[j] = row[j] * self._forgetting + relative[i] * relative[j]
        self._prices = None

    def doubt(self, factor: float) -> None:
        """Multiply the weight of all observations so far by `factor`."""
        self._squares = [[factor * each for each in row] for row in self._squares]
        self._sums = [factor * each for each in self._sums]

    def suppose(self, tie: Tie) -> None:
        """Add `tie` as one observation, which decays like others. Call this after `observe`."""
        _add(self._squares, tie, [row[:] for row in self._squares])
        self._prices = None

    def bound_first(self, most: float) -> None:
        """Limit the price of the first feature to `most`."""
        if most != self._most:
            self._most = most
            self._prices = None

    @property
    def prices(self) -> list[float]:
        """The price of each feature."""
        if self._prices is None:
            self._prices = self._fit()
        return self._prices

    def _fit(self) -> list[float]:
        squares = self._penalised()
        prices = _non_negative(squares, self._sums, range(len(squares)))
        if prices[0] <= self._most:
            return prices
        sums = [each - row[0] * self._most for each, row in zip(self._sums, squares, strict=True)]
        return [self._most, *_non_negative(squares, sums, range(1, len(squares)))[1:]]

    def _penalised(self) -> Matrix:
        squares = [row[:] for row in self._squares]
        for i, penalty in enumerate(self._penalties):
            squares[i][i] *= 1 + penalty
        for tie in self._ties:
            _add(squares, tie, self._squares)
        return squares


def _add(squares: Matrix, tie: Tie, observed: Matrix) -> None:
    i, j, ratio = tie.first, tie.second, tie.ratio
    weight = tie.weight * max(observed[i][i], observed[j][j])
    squares[i][i] += weight * ratio * ratio
    squares[j][j] += weight
    squares[i][j] -= weight * ratio
    squares[j][i] -= weight * ratio


def solve(matrix: Matrix, values: Sequence[float]) -> list[float]:
    """Solve a positive semidefinite system of linear equations by Gaussian elimination.

    An unknown is 0 if it depends on earlier unknowns, within rounding errors.
    """
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    size = len(rows)
    is_free = [False] * size
    for i in range(size):
        is_free[i] = rows[i][i] <= ROUNDING * matrix[i][i]
        if is_free[i]:
            continue
        for lower in rows[i + 1 :]:
            factor = lower[i] / rows[i][i]
            for j in range(i, size + 1):
                lower[j] -= factor * rows[i][j]
    solution = [0.0] * size
    for i in reversed(range(size)):
        if is_free[i]:
            continue
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution


def _non_negative(squares: Matrix, sums: Sequence[float], features: Iterable[int]) -> list[float]:
    """Return prices; the feature with the lowest price is dropped until no price is negative."""
    active = [i for i in features if squares[i][i] > 0]
    prices = [0.0] * len(squares)
    while active:
        part = [[squares[i][j] for j in active] for i in active]
        solution = solve(part, [sums[i] for i in active])
        worst = min(range(len(active)), key=solution.__getitem__)
        if solution[worst] >= 0:
            for i, price in zip(active, solution, strict=True):
                prices[i] = price
            break
        del active[worst]
    return prices
