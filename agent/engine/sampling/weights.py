"""A row of logits as weights, their exponentials, and draws from them without sorting.

Weights are summed in blocks: a draw finds its block first, and then its token in the block. Arrays
as long as the row go only through NumPy's vectorised loops, without a branch per token. Choosing
by a mask (`row[mask]`, `numpy.where`) takes ten times as long as multiplying by the mask. Arrays
of a row's size are reused (`Scratch`), since the memory of new arrays must be paged in.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .selection import CAUTION, FEW, Ids, Leaders, Mask, Row, highest, highest_mask, sample_of

BLOCK = 512
"""The number of weights that are summed together."""

_PART = 16 * BLOCK
"""The part of a row that is searched first if a part may suffice."""

_GLANCE = 1024
"""The number of tokens that are sorted first, in case they are all that is needed."""

_BRACKET = 40
"""The number of sampled tokens around an edge, within which all tokens are examined."""

LEADERS = (64, 256)
"""How many of many tokens are sorted to be drawn first: the second number if the first is too
small.
"""

_FLAT = 0.1
"""Share of the total below which leaders are rarely drawn, so few of them are sorted."""

NO_FLOOR = np.float32(-np.inf)

_UNSHIFTED = (-20, 40)
"""Outside this range the highest exponent is shifted to 0, to keep sums of squares finite."""

_MOST_TRIES = 16
"""Rejected draws after which the weights are reduced, so that later draws are accepted."""

_ROUNDED_UP = 1.0001
"""Margin for sums in single precision."""


def _is_exp2_fast() -> bool:
    """Return whether NumPy's `exp2` is vectorised. With AVX-512 it is, and `exp` is slower."""
    loops = np.lib.introspect.opt_func_info(func_name="^exp2$", signature="float32")
    chosen = str(loops.get("exp2", {}).get("ff", {}).get("current", ""))
    return chosen.startswith(("X86_V4", "AVX512"))


_IS_EXP2_FAST = _is_exp2_fast()
_LEAST_EXPONENT = np.float32(-85)
"""Exponents below this give denormal numbers, which make `exp2` many times slower.

A few denormal numbers do no harm, so only a sample is checked.
"""
_LOG2_E = np.float32(np.log2(np.e))

ONE = np.float32(1)

_ONES = np.ones(BLOCK, np.float32)

_LEAST = 5e-324

_SIGN = np.uint32(2**31)
"""The sign bit of a float."""


class Scratch:
    """Arrays of the size of a row, by purpose. They belong to one thread."""

    def __init__(self) -> None:
        self._arrays: dict[str, Row] = {}

    def row(self, purpose: str, size: int) -> Row:
        """Return an array with arbitrary content, valid until `purpose` is requested again."""
        array = self._arrays.get(purpose)
        if array is None or array.size < size:
            array = self._arrays[purpose] = np.empty(size, np.float32)
        return array[:size]


def shift_of(top: np.float32, temperature: np.float32 = ONE) -> np.float32:
    """Return the number subtracted from each logit before its exponential.

    `top` is the highest logit.
    """
    low, high = _UNSHIFTED
    return np.float32(0) if low <= top / temperature <= high else top


def exponentials(row: Row, top: np.float32, temperature: np.float32, out: Row) -> Row:
    """Write the weight of each logit of `row` to `out`; `top` is the highest logit.

    Only the ratios of weights have a meaning.
    """
    if shift := shift_of(top, temperature):
        # The difference first: with a tiny temperature the quotients would all be infinite.
        row = np.subtract(row, shift, out=out)
    if (
        _IS_EXP2_FAST
        and row.size > FEW
        and np.minimum.reduce(sample_of(row)) > _LEAST_EXPONENT * temperature
    ):
        np.multiply(row, _LOG2_E / temperature, out=out)
        return np.exp2(out, out=out)
    if temperature != 1:
        row = np.multiply(row, ONE / temperature, out=out)
    return np.exp(row, out=out)


def block_sums(values: Row, factors: Row | None = None) -> Row:
    """Return the sums of `values`, each times its factor, by block."""
    end = values.size - values.size % BLOCK
    sums = np.empty(end // BLOCK + 1, np.float32)
    table = values[:end].reshape(-1, BLOCK)
    if factors is None:
        np.vecdot(table, _ONES, out=sums[:-1])
        sums[-1] = np.vecdot(values[end:], _ONES[: values.size - end])
    else:
        np.vecdot(table, factors[:end].reshape(-1, BLOCK), out=sums[:-1])
        sums[-1] = np.vecdot(values[end:], factors[end:])
    return sums


def wide_sums(values: Row) -> NDArray[np.float64]:
    """Return the cumulative sums of `values`, in double precision."""
    return values.astype(np.float64).cumsum()  # in half the time of `cumsum` by a `dtype`


def sum_of(values: Row, factors: Row) -> float:
    """Return the sum of the products of `values` and their factors."""
    return float(block_sums(values, factors).astype(np.float64).sum())


def leave_out(values: Row, chosen: Mask) -> None:
    """Set all `values` to 0 that are not `chosen`."""
    # By floats, NumPy multiplies in half the time that it takes by truth values.
    np.multiply(values, chosen.astype(np.float32), out=values)


class Part(Protocol):
    """The first tokens in some order; testing one token is cheaper than listing all.

    Tokens with equal values are in the order of their ids.
    """

    def includes(self, token: int) -> bool:
        """Return whether the part contains `token`."""

    def before(self, token: int) -> Mask:
        """Return a mask of the tokens before `token`."""


class Prefix(Part, Protocol):
    """A `Part` that can also be listed."""

    def mask(self) -> Mask:
        """Return a mask over the vocabulary, which is true for these tokens."""

    def few(self) -> Ids | None:
        """Return the tokens in order if they are few.

        Returns `None` if they are many, or if counting them is expensive.
        """

    def some(self, most: int) -> Ids | None:
        """Return about `most` tokens that include the whole prefix; `None` if it may have more."""

    def among(self, ids: Ids) -> "Prefix":
        """Return the same prefix of the row `ids`, which include all its tokens, by positions in
        `ids`.
        """


class Weights:
    """Non-negative `values`, and their sums."""

    def __init__(self, values: Row) -> None:
        self.values = values
        self._of_blocks = block_sums(values)
        self._sums = wide_sums(self._of_blocks)
        """The cumulative sums of the blocks."""
        self.total = float(self._sums[-1])

    def only(self, chosen: Mask) -> "Weights":
        """Return the weights of only the `chosen` tokens; `values` are overwritten."""
        leave_out(self.values, chosen)
        return Weights(self.values)

    def find(self, mass: float) -> int:
        """Return the token at which the cumulative weights reach `mass`."""
        mass = max(mass, _LEAST)  # a mass of exactly 0 is the first one's that has a weight at all
        block = min(int(self._sums.searchsorted(mass)), self._sums.size - 1)
        rest = mass - (float(self._sums[block - 1]) if block else 0.0)
        values = self.values[BLOCK * block : BLOCK * (block + 1)]
        place = int(wide_sums(values).searchsorted(max(rest, _LEAST)))
        if place == values.size:  # a block's sum is rounded
            place = int(values.nonzero()[0][-1])
        return BLOCK * block + place

    def draw(self, number: float, prefix: Part | None = None) -> int:
        """Draw a token by its weight; `number` is a uniform draw in [0, 1).

        With a `prefix`, draws beyond it are rejected and repeated; `values` are overwritten then.
        """
        weights = self
        for count, each in enumerate(evens(number), start=1):
            token = weights.find(each * weights.total)
            if prefix is None or prefix.includes(token):
                break
            if count % _MOST_TRIES == 0:
                weights = weights.only(prefix.before(token))
        return token

    def draw_raised(self, power: float, numbers: Iterator[float], prefix: Prefix) -> int | None:
        """Draw a token of `prefix` by its weight to the `power`, at most 2, or return `None`.

        Only weights of some blocks are raised. A block is drawn by an upper bound on the sum of
        its raised weights. Draws beyond the real sum, or beyond the prefix, are rejected. After
        several rejected draws the result is `None`, which says nothing about the tokens.
        """
        scale = float(self._of_blocks.max())
        bounds = self._most_raised(power, scale).cumsum()
        for number in islice(numbers, _MOST_TRIES):
            mass = number * float(bounds[-1])
            block = min(int(bounds.searchsorted(mass, side="right")), bounds.size - 1)
            rest = mass - (float(bounds[block - 1]) if block else 0.0)
            values = self.values[BLOCK * block : BLOCK * (block + 1)].astype(np.float64) / scale
            place = int((values**power).cumsum().searchsorted(rest, side="right"))
            token = BLOCK * block + place
            if place < values.size and prefix.includes(token):
                return token
        return None

    def _most_raised(self, power: float, scale: float) -> NDArray[np.float64]:
        """Return upper bounds on the raised sums of each block, in multiples of `scale`.

        The bounds follow from Hölder's inequality, the number of weights, their sum, and the sum
        of their squares.
        """
        sums = self._of_blocks / np.float64(scale)
        if power <= 1:
            bounds = sums**power * BLOCK ** (1 - power)
        else:
            squares = block_sums(self.values, self.values) / np.float64(scale) ** 2
            bounds = sums ** (2 - power) * squares ** (power - 1)
        return np.asarray(bounds * _ROUNDED_UP)

    def draw_sorted(self, number: float, leaders: Leaders, num_dropped: int = 0) -> int:
        """Draw a token by its weight; the `leaders` come first in the order.

        The first `num_dropped` leaders are excluded. `values` are overwritten.
        """
        for count in LEADERS:
            first = leaders.of(max(count, num_dropped + 1))
            if not first.size:
                return self.draw(number)
            sums = wide_sums(self.values[first])
            dropped = float(sums[num_dropped - 1]) if num_dropped else 0.0
            mass = dropped + number * (self.total - dropped)
            place = int(sums.searchsorted(max(mass, _LEAST)))
            if place < first.size:
                return int(first[max(place, num_dropped)])
            if sums[-1] + LEADERS[-1] * self.values[first[-1]] < _FLAT * self.total:
                break
        if self.total < _ROUNDED_UP * sums[-1]:
            return int(first[np.count_nonzero(self.values[first]) - 1])
        return self.draw(further(number), _Below(leaders.row, leaders.row[first[-1]]))

    def draw_raised_sorted(
        self, power: float, number: float, leaders: Leaders, num_dropped: int = 0
    ) -> int | None:
        """Draw as `draw_sorted` does, but by weights to the `power`, which is at least 1.

        Returns `None` if no leader is certain. No other token weighs more than the last leader,
        which bounds the sum of the other weights.
        """
        first = leaders.of(max(LEADERS[0], num_dropped + 1))
        if not first.size:
            return None
        scale = float(self.values[first[0]])
        values = self.values[first].astype(np.float64) / scale
        rest = max(_ROUNDED_UP * self.total / scale - float(values.sum()), 0.0)
        sums = (values**power).cumsum()
        dropped = float(sums[num_dropped - 1]) if num_dropped else 0.0
        least = dropped + number * (float(sums[-1]) - dropped)
        most = least + number * rest * float(values[-1]) ** (power - 1)
        place = int(sums.searchsorted(max(least, _LEAST)))
        is_sure = most <= sums[-1] and place == int(sums.searchsorted(max(most, _LEAST)))
        return int(first[max(place, num_dropped)]) if is_sure else None


class _Below:
    """All tokens whose keys are below `edge`."""

    def __init__(self, keys: Row, edge: np.float32) -> None:
        self._keys = keys
        self._edge = edge

    def includes(self, token: int) -> bool:
        """Return whether `token` is one of these tokens."""
        return bool(self._keys[token] < self._edge)

    def before(self, token: int) -> Mask:
        """Return a mask of the tokens before `token`."""
        mask: Mask = self._keys < self._edge
        return mask


def evens(number: float) -> Iterator[float]:
    """Yield uniform draws that follow from `number`, beginning with it."""
    while True:
        yield number
        number = further(number)


def further(number: float) -> float:
    """Return another uniform draw that follows from `number` (SplitMix64).

    With it a token takes one draw of a generator, however often the draw is repeated.
    """
    bits = (int(number * 2**64) + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return (bits ^ bits >> 31) / 2**64


class Highest:
    """The tokens with the `count` highest `keys`."""

    def __init__(self, keys: Row, count: int) -> None:
        self._keys = keys
        self._count = count
        self._floor = NO_FLOOR
        """A lower bound of the keys of all these tokens."""

    def includes(self, token: int) -> bool:
        """Return whether `token` is one of these tokens."""
        key = self._keys[token]
        if key < self._floor:
            return False
        is_included = int(np.count_nonzero(self.before(token))) < self._count
        if not is_included:
            self._floor = key
        return is_included

    def before(self, token: int) -> Mask:
        """Return a mask of the tokens before `token`."""
        return _before(self._keys, token)

    def mask(self) -> Mask:
        """Return a mask over the vocabulary, which is true for these tokens."""
        return highest_mask(self._keys, self._count)

    def few(self) -> Ids | None:
        """Return the tokens in order if they are few."""
        return highest(self._keys, self._count) if self._count <= FEW else None

    def some(self, most: int) -> Ids | None:
        """Return about `most` tokens that include all of these; `None` if these may be more."""
        if self._count > most:
            return None
        keys = np.sort(sample_of(self._keys))
        expected = self._count * keys.size / self._keys.size
        num_passing = int(expected + CAUTION * math.sqrt(expected)) + 1
        ids: Ids = (self._keys >= keys[-num_passing:][0]).nonzero()[0]
        return ids if ids.size >= self._count else None

    def among(self, ids: Ids) -> "Highest":
        """Return the same set over the row `ids`, which include all its tokens, by positions in
        `ids`.
        """
        return Highest(self._keys[ids], self._count)


class Nearness:
    """The nearness of each logit of `row` to `middle`, as keys: the nearest are the highest."""

    def __init__(self, row: Row, middle: np.float32, out: Row) -> None:
        self._row = row
        self._middle = middle
        self._out = out

    def __getitem__(self, part: slice) -> Row:
        """Return the keys of a part of the row."""
        return self._keys(self._row[part])

    @cached_property
    def whole(self) -> Row:
        """All keys, in `out`."""
        return self._keys(self._row, self._out)

    def _keys(self, logits: Row, out: Row | None = None) -> Row:
        keys: Row = np.subtract(logits, self._middle, out=out)
        bits = keys.view(np.uint32)
        np.bitwise_or(bits, _SIGN, out=bits)  # a fifth of the time of `copysign`
        return keys


class Heaviest:
    """The fewest tokens with the highest `keys` whose `weights` together reach `mass`.

    Tokens whose keys are below `floor` are excluded.
    """

    def __init__(
        self, keys: Row | Nearness, weights: Weights, mass: float, floor: np.float32 = NO_FLOOR
    ) -> None:
        self._any_keys = keys
        self.weights = weights
        """The weights of all tokens of the row."""
        self._weights = weights.values
        self._total = weights.total
        self.mass = mass
        """The mass that the tokens together reach."""
        self._floor = floor
        self._border: np.float32 | None = None
        """A key from a sample: most likely the keys of all these tokens are higher."""

    @cached_property
    def _keys(self) -> Row:
        keys = self._any_keys
        return keys.whole if isinstance(keys, Nearness) else keys

    @property
    def is_nucleus(self) -> bool:
        """Return whether the keys are the weights themselves."""
        return self._any_keys is self._weights

    @property
    def least_total(self) -> float:
        """A lower bound of the tokens' total weight."""
        return self.mass if self._floor == NO_FLOOR else 0.0

    def includes(self, token: int) -> bool:
        """Return whether `token` is one of these tokens."""
        key = self._any_keys[token : token + 1][0]
        if key < self._floor:
            return False
        if self._border is not None and key < self._border:
            border, self._border = self._border, None
            if self._sum(self._keys >= border) >= self.mass:
                self._floor = border
                return False
        if self._is_short(self._total - float(self._weights[token]), key):
            return True
        # Equals with higher ids are not before it.
        has_equals = int(np.count_nonzero(self._keys == key)) > 1
        if has_equals and self._sum(self.before(token)) < self.mass:
            return True
        self._floor = key  # nothing below is, either
        return False

    def goes_below(self, key: np.float32) -> bool:
        """Return whether some of the tokens have keys below `key`, ignoring the floor."""
        return self._is_short(self._total, key)

    def _is_short(self, weight: float, key: np.float32) -> bool:
        """Return whether `weight` minus the weight below `key` is less than the mass.

        Usually a part of the row suffices to decide.
        """
        share = max(self._total - self.mass, 0.0) / self._total
        size = max(_PART, int(2 * share * self._weights.size))
        for start in range(0, self._weights.size, size):
            part = slice(start, start + size)
            behind = (self._any_keys[part] < key).astype(np.float32)
            weight -= sum_of(self._weights[part], behind)
            if weight < self.mass:
                return True
        return False

    def before(self, token: int) -> Mask:
        """Return a mask of the tokens before `token`."""
        return _before(self._keys, token)

    def mask(self) -> Mask:
        """Return a mask over the vocabulary, which is true for these tokens."""
        passing = self._mask_in_order() if self._keys.size <= FEW else self._mask_by_bracket()
        if self._floor > NO_FLOOR:
            passing &= self._keys >= self._floor
        return passing

    def few(self) -> Ids | None:
        """Return the tokens in order if they are few."""
        if self._guess[1] > FEW:
            return None
        ids = self.some(FEW)
        if ids is None:  # a sample misses heavy ones that are left out
            ids = highest(self._keys, min(_GLANCE, self._keys.size))
        else:
            ids = ids[np.argsort(-self._keys[ids])]
        sums = wide_sums(self._weights[ids])
        if sums[-1] < self.mass:
            return None
        ids = ids[: int(sums.searchsorted(self.mass)) + 1]
        return ids if self._floor == NO_FLOOR else ids[self._keys[ids] >= self._floor]

    def some(self, most: int) -> Ids | None:
        """Return about `most` tokens that include all of these; `None` if these may be more."""
        border, count = self._guess
        self._border = border
        if count > most:
            return None
        ids: Ids = (self._keys >= border).nonzero()[0]
        return ids if float(self._weights[ids].sum(dtype=np.float64)) >= self.mass else None

    @cached_property
    def _guess(self) -> tuple[np.float32, int]:
        """Return a key that most likely all tokens reach, and about how many tokens reach it."""
        # What is left out is many and light, so a sample tells its weight better than the others'.
        keys, weights = self._sample()
        ratio = self._keys.size / keys.size
        sums = weights.cumsum()
        most = sums + CAUTION * np.sqrt(np.square(weights).cumsum())
        rest = max(self._total - self.mass, 0.0) / ratio
        place = min(int(most.searchsorted(rest)), keys.size - 1)
        return keys[place], int((keys.size - place) * ratio)

    def _sample(self) -> tuple[Row, Row]:
        """Return keys of some tokens and their weights, the lowest first."""
        keys = sample_of(self._keys)
        if self.is_nucleus:
            keys = np.sort(keys)
            return keys, keys
        order = np.argsort(keys)
        return keys[order], sample_of(self._weights)[order]

    def among(self, ids: Ids) -> "Heaviest":
        """Return the same set over the row `ids`, which include all its tokens, by positions in
        `ids`.
        """
        weights = Weights(self._weights[ids])
        keys = weights.values if self.is_nucleus else self._keys[ids]
        return Heaviest(keys, weights, self.mass, self._floor)

    def _mask_by_bracket(self) -> Mask:
        """Return the mask, ignoring the floor, after examining only the tokens around the edge."""
        low, high, before = self._bracket()
        passing: Mask = self._keys > high
        near = ((self._keys > low) & ~passing).nonzero()[0]
        part = Heaviest(self._keys[near], Weights(self._weights[near]), self.mass - before)
        is_short = 2 * near.size < self._keys.size
        passing[near[part.mask() if is_short else part._mask_in_order()]] = True
        return passing

    def _mask_in_order(self) -> Mask:
        """Return the mask, ignoring the floor, after sorting all keys."""
        order = np.argsort(-self._keys)
        sums = wide_sums(self._weights[order])
        edge = self._keys[order[min(int(sums.searchsorted(self.mass)), order.size - 1)]]
        passing: Mask = self._keys > edge
        before = float(self._weights[passing].sum(dtype=np.float64))
        equals = (self._keys == edge).nonzero()[0]
        sums = before + wide_sums(self._weights[equals])
        passing[equals[: int(sums.searchsorted(self.mass)) + 1]] = True
        return passing

    def _bracket(self) -> tuple[np.float32, np.float32, float]:
        """Return a key below the last token's, a key not below it, and the mass above that.

        Few tokens are between the two keys. A sample says where to search, and the weights above a
        key there are summed.
        """
        keys, weights = self._sample()
        sums = weights.cumsum()
        spread = CAUTION * np.sqrt(weights * sums)
        rest = max(self._total - self.mass, 0.0) * keys.size / self._keys.size
        looks = [int(each.searchsorted(rest)) for each in (sums - spread, sums + spread)]
        low, high, before = -1, keys.size, 0.0
        while high - low > _BRACKET:
            place = looks.pop() if looks else (low + high) // 2
            if not low < place < high:
                continue
            above = self._sum(self._keys > keys[place])
            if above >= self.mass:
                low = place
            else:
                high, before = place, above
        lowest = keys[low] if low >= 0 else NO_FLOOR
        return lowest, keys[high] if high < keys.size else np.float32(np.inf), before

    def _sum(self, chosen: Mask) -> float:
        return sum_of(self._weights, chosen.astype(np.float32))


class NucleusWithin:
    """The fewest heaviest of the `outer` tokens with a `share` of the outer tokens' weight.

    The outer tokens weigh at least their mass, and at most one token more. So for most tokens the
    sums over all tokens decide. For the other tokens both sets are computed.
    """

    def __init__(self, outer: Heaviest, share: float, heaviest: float) -> None:
        weights = outer.weights
        self.weights = weights
        self._outer = outer
        self._share = share
        self._heaviest = heaviest
        self._found: Mask | None = None
        self._surely = Heaviest(weights.values, weights, share * outer.mass)
        most = share * (outer.mass + heaviest) + weights.total - outer.mass
        self._possibly = Heaviest(weights.values, weights, most)

    def includes(self, token: int) -> bool:
        """Return whether `token` is one of these tokens."""
        if self._found is None:
            if not self._outer.includes(token):
                return False
            if self._surely.includes(token):
                return True
            if not self._possibly.includes(token):
                return False
        return bool(self.mask()[token])

    def before(self, token: int) -> Mask:
        """Return a mask of the tokens before `token`, which are all tokens of the nucleus."""
        return self.mask()

    def mask(self) -> Mask:
        """Return a mask over the vocabulary, which is true for these tokens."""
        if self._found is None:
            outer = self._outer.mask()
            weights = Weights(self.weights.values * outer)
            nucleus = Heaviest(weights.values, weights, self._share * weights.total)
            self._found = outer & nucleus.mask()
        return self._found

    def few(self) -> Ids | None:
        """Return the tokens in order if they are few."""
        return None

    def some(self, most: int) -> Ids | None:
        """Return about `most` tokens that include all of these; `None` if these may be more."""
        return self._outer.some(most)

    def among(self, ids: Ids) -> "NucleusWithin":
        """Return the same set over the row `ids`, which include all its tokens, by positions in
        `ids`.
        """
        return NucleusWithin(self._outer.among(ids), self._share, self._heaviest)


def _before(keys: Row, token: int) -> Mask:
    before: Mask = keys > keys[token]
    before[:token] |= keys[:token] == keys[token]
    return before
