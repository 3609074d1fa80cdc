"""The filters of one row, and the draw: top-n-sigma, top-k, typical, top-p, min-p and XTC.

llama.cpp copies every logit into an entry of twelve bytes and orders the entries. For a large
vocabulary that costs more than all other bookkeeping of a step. Here the row is read in place.
Filters nearly always keep few tokens, and a bound proves which tokens, without sorting. Only these
tokens are copied, sorted, and drawn from as in llama.cpp: the same seed gives the same token.

If many tokens remain (a flat row, or no filter at all), nothing is sorted: tokens are drawn in the
order of their ids. The result of the last filter is then not even computed. A token is drawn from
all tokens, and accepted if it passes the filter. Otherwise another token is drawn from the tokens
before it, with a number that follows from the first. Each token keeps its probability. Weights at
another temperature than the filters' (`Weights.draw_raised`) are handled in the same way: they are
not computed for all tokens.

If the next filter needs the result of the last filter, that result is computed, except for a
nucleus of a flat row (`NucleusWithin`). If the result is an eighth of the row or less, a sample
locates it and sums prove it. All further work is done on a short row.
"""

import math

import numpy as np

from .selection import FEW, LEAST_DRAW, Ids, Leaders, Mask, Row, folded, highest, reaching, tops_of
from .weights import (
    LEADERS,
    NO_FLOOR,
    ONE,
    Heaviest,
    Highest,
    Nearness,
    NucleusWithin,
    Prefix,
    Scratch,
    Weights,
    block_sums,
    evens,
    exponentials,
    leave_out,
    shift_of,
    sum_of,
    wide_sums,
)

_SHORT = 8
"""If at most one in this many tokens remains, the remaining tokens are copied to a shorter row."""

_NUM_TOPS = 1024
"""Minimum columns used to locate the end of a nucleus."""

_ROUNDED_UP = 1.00001
"""Margin for sums in single precision that are used as bounds."""

_HOT = 2
"""From this temperature on, a token drawn from all tokens rarely passes a strict filter."""

_SLIGHT = 0.01
"""Share of the total: a nucleus nearly always has tokens that weigh less."""

_LARGEST = np.finfo(np.float32).max
_LEAST_WEIGHT = np.float32(np.finfo(np.float32).smallest_subnormal)


class Pool:
    """The tokens of `row` that may still be drawn; filters are applied in llama.cpp's order.

    `tops` are the tops of `row` (`selection`); the highest is finite, and no logit is NaN.
    `likely` are the weights of `row` at a temperature of 1, and `ranked` its highest tokens in
    order, if known. Tokens that XTC drops may be ruled out in `row`.
    """

    def __init__(
        self,
        row: Row,
        tops: Row,
        scratch: Scratch,
        likely: Weights | None = None,
        ranked: Ids | None = None,
    ) -> None:
        self._row = row
        self._names: Ids | None = None
        """The tokens of `_row`, if `_row` is only a part of the whole row."""
        self._tops = tops
        self._top = tops.max()
        self._shift = shift_of(self._top)
        self._scratch = scratch
        self._ranked = ranked
        self._ids: Ids | None = None
        """The remaining tokens in the order of the draw, if few; `None` if many."""
        self._is_sorted = False
        """True if `_ids` begins with its highest tokens."""
        self._passing: Mask | None = None
        """If many tokens remain, a mask of them; `None` if all remain."""
        self._likely = likely
        """The weights of many tokens, at a temperature of 1."""
        self._prefix: Prefix | None = None
        """The result of the last filter on many tokens, if that result is not computed yet."""
        self._leaders: Leaders | None = None
        """The first of many tokens in draw order; `_num_dropped` of these are excluded."""
        self._num_dropped = 0

    @property
    def has_choice(self) -> bool:
        """Return whether two tokens or more remain."""
        return self._ids is None or self._ids.size > 1

    # ---- filters

    def keep_within_deviations(self, num_deviations: float) -> None:
        """Keep logits at most `num_deviations` standard deviations below the highest.

        The deviation is taken over the finite logits. https://arxiv.org/abs/2411.07641
        """
        deviation = _deviation(self._row, self._scratch.row("drawn", self._row.size))
        self._keep_from(self._top - np.float32(num_deviations) * deviation)

    def keep_highest(self, count: int) -> None:
        """Keep the `count` highest tokens."""
        row = self._row
        if self._ids is not None:
            self._keep_sorted(self._ids[highest(row[self._ids], min(count, self._ids.size))])
        elif self._ranked is not None and count <= self._ranked.size:
            self._keep_sorted(self._ranked[:count])
        elif count <= FEW or row.size <= FEW:
            self._keep_sorted(highest(row, min(count, row.size), self._tops))
        elif count < row.size:
            self._settle()
            self._prefix = Highest(row, count)

    def keep_typical(self, mass: float) -> None:
        """Keep tokens whose surprise is nearest to the expected one, up to `mass` in total.

        https://arxiv.org/abs/2202.00666
        """
        self._settle()
        ids = self._few_ids()
        if ids is not None:
            self._keep_ids(ids[most_typical(self._row[ids], mass)])
            return
        likely = self._weights()
        self._prefix = Heaviest(self._nearness(likely), likely, mass * likely.total)

    def keep_nucleus(self, mass: float, min_p: float = 0.0) -> None:
        """Keep the fewest highest tokens with `mass` together, without tokens below `min_p`.

        Both filters keep the highest tokens, so the stricter filter decides.
        """
        heaviest = float(self._weight(self._top))
        outer = self._prefix
        if isinstance(outer, Heaviest) and min_p == 0 and FEW * heaviest < outer.least_total:
            self._prefix = NucleusWithin(outer, mass, heaviest)
            return
        self._settle()
        ids = self._few_ids()
        if ids is not None:
            self._cut(ids, mass)
            if min_p > 0:
                self._keep_from(self._floor(min_p))
            return
        likely = self._weights()
        floor, least = NO_FLOOR, NO_FLOOR
        if min_p > 0:
            floor = self._floor(min_p)
            least = self._weight(floor)
            ids = self._few_from(floor)
        if ids is None:
            nucleus = Heaviest(likely.values, likely, mass * likely.total, least)
            ids = self._few_around(nucleus)
            if ids is None:
                self._prefix = nucleus
                return
        self._cut(ids, mass, likely.values, likely.total)
        self._keep_from(floor)

    def keep_likely(self, min_p: float) -> None:
        """Keep tokens with at least `min_p` of the likeliest token's probability."""
        self._settle()
        self._keep_from(self._floor(min_p))

    def drop_top_choices(self, threshold: float) -> None:
        """Drop tokens with a probability of at least `threshold`, except the least likely one.

        https://github.com/oobabooga/text-generation-webui/pull/6335
        """
        if isinstance(self._prefix, Heaviest):
            most_likely = float(self._weight(self._top))
            if most_likely < threshold * self._prefix.least_total:
                return
            if self._prefix.is_nucleus and self._drop_of_nucleus(self._prefix, threshold):
                return
        self._settle()
        ids = self._few_ids()
        if ids is None:
            self._drop_of_many(threshold)
            return
        ids = ids[np.argsort(-self._row[ids], kind="stable")]
        weights = np.exp(self._row[ids] - self._row[ids[0]])
        probabilities = weights / weights.sum()
        is_above = (probabilities >= np.float32(threshold)) & (probabilities > 0)
        self._keep_sorted(ids[max(int(np.count_nonzero(is_above)) - 1, 0) :])

    # ---- choices

    def best(self) -> int:
        """Return the highest token."""
        self._settle()
        return self._token(self._best_place())

    def draw(self, temperature: np.float32, number: float) -> int:
        """Draw a token by probability; `number` is a uniform draw in [0, 1)."""
        return self._token(self._draw_place(temperature, number))

    def _token(self, place: int) -> int:
        return place if self._names is None else int(self._names[place])

    def _best_place(self) -> int:
        if self._ids is not None:
            return int(self._ids[self._row[self._ids].argmax()])
        if self._leaders is not None:
            return int(self._leaders.of(self._num_dropped + 1)[self._num_dropped])
        return self._highest_of_many()

    def _draw_place(self, temperature: np.float32, number: float) -> int:
        numbers = evens(number)
        if temperature >= _HOT:
            self._shorten()
        if isinstance(self._prefix, Heaviest | NucleusWithin) and 0.5 <= temperature != 1:
            place = self._weights().draw_raised(1 / float(temperature), numbers, self._prefix)
            if place is not None:
                return place
        if 1 < temperature < _HOT:
            self._shorten()
        if self._ids is not None:
            depths = self._row[self._ids] - self._top
            sums = wide_sums(np.exp(depths / temperature))
            return int(self._ids[sums.searchsorted(max(number * sums[-1], LEAST_DRAW))])
        if self._leaders is not None:
            return self._draw_in_order(temperature, next(numbers), self._leaders)
        return self._weights(temperature).draw(next(numbers), self._prefix)

    def _draw_in_order(self, temperature: np.float32, number: float, leaders: Leaders) -> int:
        if temperature < 1 and self._likely is not None:
            power = 1 / float(temperature)
            place = self._likely.draw_raised_sorted(power, number, leaders, self._num_dropped)
            if place is not None:
                return place
        return self._weights(temperature).draw_sorted(number, leaders, self._num_dropped)

    # ---- few

    def _few_ids(self) -> Ids | None:
        """Return the remaining tokens, if they are few."""
        if self._ids is None and self._row.size <= FEW:
            return np.arange(self._row.size)
        return self._ids

    def _keep_ids(self, ids: Ids) -> None:
        self._ids = ids
        self._is_sorted = False
        self._top = self._row[ids].max()

    def _keep_sorted(self, ids: Ids) -> None:
        self._ids = ids
        self._is_sorted = True
        self._top = self._row[ids[0]]

    def _cut(
        self, ids: Ids, mass: float, values: Row | None = None, whole: float | None = None
    ) -> None:
        """Keep the highest of `ids` that together have `mass` of `whole`, by the weights `values`.

        Without `values` and `whole`, `ids` are the whole.
        """
        if ids is not self._ids or not self._is_sorted:
            ids = ids[np.argsort(-self._row[ids])]
        if values is None or whole is None:
            sums = np.exp(self._row[ids] - self._row[ids[0]]).cumsum()
            target = np.float32(mass) * sums[-1]
        else:
            sums = wide_sums(values[ids])
            target = mass * whole
        self._keep_sorted(ids[: int(sums.searchsorted(target)) + 1])

    def _keep_from(self, floor: np.float32) -> None:
        if self._ids is not None:
            if floor > NO_FLOOR:
                self._ids = self._ids[self._row[self._ids] >= floor]
            return
        ids = self._few_from(floor)
        if ids is None:
            self._keep(self._row >= floor)
        else:
            self._keep_ids(ids)

    def _few_from(self, floor: np.float32) -> Ids | None:
        """Return the tokens whose logits reach `floor`, in the order of ids, if they are few."""
        if self._passing is not None or int(np.count_nonzero(self._tops >= floor)) > FEW:
            return None
        ids = reaching(self._row, self._tops, floor)
        return ids if ids.size <= FEW else None

    def _floor(self, min_p: float) -> np.float32:
        return np.float32(self._top + np.float32(math.log(min_p)))

    # ---- many

    def _keep(self, passing: Mask) -> None:
        """Drop all tokens that are not in `passing`."""
        if self._passing is not None:
            passing = passing & self._passing
        count = int(np.count_nonzero(passing))
        if count <= FEW:
            self._keep_ids(passing.nonzero()[0])
        elif count < self._row.size:
            self._passing = passing
            self._likely = None if self._likely is None else self._likely.only(passing)

    def _left(self, ids: Ids | None) -> Ids | None:
        """Return the tokens of `ids` that no filter has dropped so far."""
        return ids if ids is None or self._passing is None else ids[self._passing[ids]]

    def _settle(self) -> None:
        """Compute the result of a filter that was postponed."""
        if self._prefix is None:
            return
        ids = self._left(self._prefix.few())
        if ids is None:
            self._shorten()
            passing = self._prefix.mask()
            self._prefix = None
            self._keep(passing)
        else:
            self._prefix = None
            self._keep_ids(ids)
        if self._ids is None:
            self._top = self._row[int(self._weights().values.argmax())]

    def _shorten(self) -> None:
        """Continue with a part of the row, if only a small part may pass the last filter."""
        if self._prefix is None:
            return
        ids = self._left(self._prefix.some(self._row.size // _SHORT))
        if ids is None:
            return
        self._prefix = self._prefix.among(ids)
        self._names = ids if self._names is None else self._names[ids]
        self._row = self._row[ids]
        self._tops = tops_of(self._row)
        self._passing = None
        if isinstance(self._prefix, Heaviest | NucleusWithin):
            self._likely = self._prefix.weights
        elif self._likely is not None:
            self._likely = Weights(self._likely.values[ids])

    def _weights(self, temperature: np.float32 = ONE) -> Weights:
        """Return the weights of all remaining tokens."""
        if temperature == 1 and self._likely is not None:
            return self._likely
        out = self._scratch.row("likely" if temperature == 1 else "drawn", self._row.size)
        exponentials(self._row, self._top, temperature, out)
        if self._passing is not None:
            leave_out(out, self._passing)
        weights = Weights(out)
        if temperature == 1:
            self._likely = weights
        return weights

    def _highest_of_many(self) -> int:
        values = self._weights().values
        ids = (values == values.max()).nonzero()[0]
        return int(ids[self._row[ids].argmax()])

    def _nearness(self, likely: Weights) -> Nearness:
        """Return the distance of each token's surprise from the expected surprise, as keys."""
        row, out = self._row, self._scratch.row("nearness", self._row.size)
        expected = sum_of(likely.values, row) / likely.total
        if not math.isfinite(expected):  # what is ruled out has no weight, but infinitely often
            expected = sum_of(likely.values, np.maximum(row, -_LARGEST, out=out)) / likely.total
        return Nearness(row, np.float32(expected), out)

    def _few_around(self, nucleus: Heaviest) -> Ids | None:
        """Return a few tokens that include the whole nucleus, or `None` if there may be many."""
        if FEW * self._weight(self._top) < nucleus.mass:
            return None
        ids = self._contenders(nucleus.mass)
        return self._left(nucleus.some(FEW)) if ids is None else ids

    def _contenders(self, target: float) -> Ids | None:
        """Return a few tokens that include the whole nucleus, or `None` if there may be many.

        The highest tokens of each column together weigh no more than as many of the highest
        tokens. So if they have the mass, no token below the lowest of them belongs to the nucleus.
        """
        if self._passing is not None:
            return None
        some = folded(self._tops, _NUM_TOPS)
        if float(np.add.reduce(self._weigh_some(some))) < target:
            return None
        some = np.sort(some)[::-1]
        place = int(self._weigh_some(some).cumsum().searchsorted(_ROUNDED_UP * target))
        bound = some[min(place, some.size - 1)]
        ids = reaching(self._row, self._tops, bound)
        return ids if ids.size <= FEW else None

    def _weight(self, logit: np.float32) -> np.float32:
        """Return the weight at a temperature of 1."""
        return np.float32(np.exp(logit - self._shift))

    def _weigh_some(self, logits: Row) -> Row:
        """Return the weights of some logits at a temperature of 1, nearly as exact as the row's."""
        weights: Row = np.exp(logits - self._shift)
        return weights

    def _drop_of_nucleus(self, nucleus: Heaviest, threshold: float) -> bool:
        """Drop the top choices of a postponed nucleus; return `False` to have it computed first.

        The nucleus weighs at least its mass, and at most one token more. So it is mostly certain
        which tokens are above the threshold, and the rest is a nucleus of the other tokens.
        """
        values, total = nucleus.weights.values, nucleus.least_total
        least = threshold * total
        # The floor is lower by more than its rounding.
        ids = (
            self._few_from(self._shift + np.float32(math.log(least) - 1e-3)) if least > 0 else None
        )
        if ids is None:
            return False
        ids = ids[values[ids] >= least]
        heavy = values[ids]
        is_certain = heavy >= least * (1 + threshold)
        if not is_certain.all() and nucleus.goes_below(np.float32(_SLIGHT * total)):
            is_certain = heavy >= least * (1 + _SLIGHT)
        if not is_certain.all() or float(heavy.sum()) >= total:
            return False
        if ids.size > 1:
            lowest = ids.size - 1 - int(self._row[ids][::-1].argmin())
            self._top = self._row[ids[lowest]]
            dropped = np.delete(ids, lowest)
            total -= float(values[dropped].sum(dtype=np.float64))
            self._row[dropped] = -np.inf
            values[dropped] = 0
            self._likely = Weights(values)
            self._prefix = Heaviest(values, self._likely, total)
        return True

    def _drop_of_many(self, threshold: float) -> None:
        if self._passing is None:
            self._leaders = Leaders(self._row, self._tops)
            whole = float(np.add.reduce(self._weigh_some(self._tops)))  # at least
            if self._weight(self._top) < threshold * whole:
                return
            values = self._weights().values
        else:
            values = self._weights().values
            self._leaders = Leaders(values, tops_of(values))
        least = max(np.float32(threshold * self._weights().total), _LEAST_WEIGHT)
        first = self._leaders.of(LEADERS[0])
        num_above = int(np.count_nonzero(values[first] >= least))
        if num_above == first.size:
            above = (values >= least).nonzero()[0]
            num_above = above.size
            if num_above > FEW:
                self._leaders = None
                lowest = num_above - 1 - int(self._row[above][::-1].argmin())
                passing = np.ones(self._row.size, np.bool_)
                passing[np.delete(above, lowest)] = False
                self._keep(passing)
                return
        self._num_dropped = max(num_above - 1, 0)


def _deviation(row: Row, out: Row) -> np.float32:
    """Return the standard deviation of the finite logits; `out` is overwritten."""
    mean = block_sums(row).sum(dtype=np.float64) / row.size
    if not math.isfinite(mean):
        return _deviation_of_some(row, out)
    np.subtract(row, np.float32(mean), out=out)
    squares = sum_of(out, out)
    if not math.isfinite(squares):
        return _deviation_of_some(row, out)
    return np.float32(math.sqrt(squares / row.size))


def _deviation_of_some(row: Row, out: Row) -> np.float32:
    """Return the deviation if some logits are ruled out, or too large to be squared."""
    is_finite = (row > -np.inf).astype(np.float32)
    np.maximum(row, -_LARGEST, out=out)  # times nothing, it is nothing
    count = float(np.count_nonzero(is_finite))
    mean = sum_of(out, is_finite) / count
    np.subtract(out, np.float32(mean), out=out)
    np.multiply(out, is_finite, out=out)
    squares = sum_of(out, out)
    if math.isfinite(squares):
        return np.float32(math.sqrt(squares / count))
    return np.float32(row[row > -np.inf].std(dtype=np.float64))


def most_typical(logits: Row, mass: float) -> Ids:
    """Return positions of the most typical of few logits, nearest to expected surprise first."""
    depths = logits.max() - logits
    weights = np.exp(-depths)
    whole = weights.sum()
    probabilities = weights / whole
    surprises = depths + np.log(whole)
    expected = probabilities @ np.where(probabilities > 0, surprises, np.float32(0))
    places = np.argsort(np.abs(surprises - expected))
    sums = probabilities[places].cumsum()
    return places[: int(sums.searchsorted(np.float32(mass), side="right")) + 1]
