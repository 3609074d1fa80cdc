"""Sampling said plainly: what may be drawn is put in order, whatever it is.

These were the agent's samplers before long rows were drawn from without an order. They say what is
right (tests of `agent/engine/sampling/`), and are what `bench.sampling` compares with.
"""

import math

import numpy as np
from numpy.typing import NDArray

from arriero.agent.engine.sampling.log_probs import LEAST, LogProbs, RawRow
from arriero.agent.engine.sampling.mirostat import _num_within
from arriero.agent.engine.sampling.mt19937 import Mt19937
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Ids, Row, without_nan

_LEAST_TEMPERATURE = np.finfo(np.float32).tiny
_LEAST_DRAW = 5e-324


class PlainSampler(Sampler):
    """Chooses as `Sampler` does, and takes its time."""

    def choose(self, row: Row) -> int:
        """The next token."""
        if self._sampling.top_log_probs is None:
            return self._choose(row, None)
        raw = row.copy()
        token = self._choose(row, None)
        self._log_probs.append(log_probs_of(raw, token, self._sampling.top_log_probs))
        return token

    def _pick(self, row: Row, raw: RawRow | None) -> int:
        best = int(row.argmax())
        if math.isnan(row[best]):
            row = without_nan(row)
            best = int(row.argmax())
        if not math.isfinite(row[best]):
            return best if row[best] > 0 else self._any_token(row.size)
        sampling = self._sampling
        is_greedy = sampling.temperature <= 0
        if is_greedy and not sampling.may_pass_over_the_best:
            return best
        if sampling.mirostat > 0:
            return self._plain_mirostat.draw((row - row[best]) / self._temperature)
        ids = self._candidates(row)
        logits = row if ids is None else row[ids]
        place = int(logits.argmax()) if is_greedy else self._draw(logits)
        return place if ids is None else int(ids[place])

    @property
    def _plain_mirostat(self) -> "PlainMirostat":
        found: PlainMirostat | None = getattr(self, "_plain", None)
        if found is None:
            found = self._plain = PlainMirostat(self._sampling, self._rng)
        return found

    def _candidates(self, row: Row) -> Ids | None:
        ids = self._filtered(row)
        if self._xtc_chance is None or (ids is not None and ids.size < 2):
            return ids
        if self._xtc_chance.draw_single() > self._sampling.xtc_probability:
            return ids
        return without_top_choices(row, ids, self._sampling.xtc_threshold)

    def _filtered(self, row: Row) -> Ids | None:
        if self._sampling.top_n_sigma <= 0:
            return candidates(row, self._sampling)
        within = within_deviations(row, self._sampling.top_n_sigma)
        places = candidates(row[within], self._sampling)
        return within if places is None else within[places]

    def _draw(self, logits: Row) -> int:
        weights = np.exp((logits - logits.max()) / self._temperature)
        sums = weights.cumsum(dtype=np.float64)
        return int(sums.searchsorted(max(self._rng.draw() * sums[-1], _LEAST_DRAW)))


def log_probs_of(row: Row, token: int, num_top: int) -> LogProbs:
    """What the logits in `row` say of `token`, and of the `num_top` likeliest."""
    best = row.max()
    whole = float(best) + np.log(np.exp(row - best).sum(dtype=np.float64))
    ids = highest(row, min(num_top, row.size)).tolist() if num_top else ()
    top = tuple((id, _finite(float(row[id]) - whole)) for id in ids)
    return LogProbs(token, _finite(float(row[token]) - whole), top)


def _finite(log_prob: float) -> float:
    return min(float(log_prob), 0.0) if log_prob > LEAST else LEAST


# ---- filters

COLUMN = 32
"""Logits in a column of the table that is searched for the highest."""
GLANCES = (256, 8192)
"""How many tokens are put in order before all of them are: nearly every nucleus lies in these."""


def candidates(row: Row, sampling: Sampling) -> Ids | None:
    """Ids of the tokens that may be chosen, at least one; `None` where all may.

    With `top_k` or `top_p` the highest logits come first, with `typical_p` alone the most typical
    ones, otherwise ids ascend. No logit of `row` may be NaN, and the highest is to be finite.
    """
    if sampling.typical_p < 1:
        return _typical_candidates(row, sampling)
    if sampling.top_k > 0:
        ids = highest(row, min(sampling.top_k, row.size))
        return ids[: _num_passing(row[ids], sampling)]
    if sampling.top_p < 1:
        return _nucleus(row, sampling)
    if sampling.min_p > 0:
        return np.flatnonzero(row >= _floor(row.max(), sampling))
    return None


def highest(row: Row, count: int) -> Ids:
    """Ids of the `count` highest logits in descending order."""
    ids = _contenders(row, count)
    return ids[np.argsort(-row[ids])[:count]]


def within_deviations(row: Row, num_deviations: float) -> Ids:
    """Ids of the logits that are no further below the highest than so many deviations, ascending.

    The standard deviation is that of the finite logits. https://arxiv.org/abs/2411.07641
    """
    finite = row if row.min() > -np.inf else row[row > -np.inf]
    deviation = finite.std()
    if not np.isfinite(deviation):  # the logits are too large to be squared
        deviation = np.float32(finite.std(dtype=np.float64))
    return np.flatnonzero(row >= finite.max() - np.float32(num_deviations) * deviation)


def most_typical(logits: Row, mass: float) -> Ids:
    """Places of the logits whose surprise is nearest to the expected one, up to `mass` in all.

    The nearest comes first. https://arxiv.org/abs/2202.00666
    """
    depths = logits.max() - logits
    weights = np.exp(-depths)
    whole = weights.sum()
    probabilities = weights / whole
    surprises = depths + np.log(whole)
    expected = probabilities @ np.where(probabilities > 0, surprises, np.float32(0))
    nearness = -np.abs(surprises - expected)
    for count in (*GLANCES, logits.size):
        places = highest(nearness, min(count, logits.size))
        passed = probabilities[places].cumsum() > np.float32(mass)
        if passed.any():
            return places[: int(passed.argmax()) + 1]
    return places


def without_top_choices(row: Row, ids: Ids | None, threshold: float) -> Ids:
    """The tokens, likeliest first, less those of `threshold` or more, of which the last stays.

    https://github.com/oobabooga/text-generation-webui/pull/6335
    """
    if ids is None:
        ids = np.arange(row.size)
    ids = ids[np.argsort(-row[ids], kind="stable")]
    weights = np.exp(row[ids] - row[ids[0]])
    probabilities = weights / weights.sum()
    is_above = (probabilities >= np.float32(threshold)) & (probabilities > 0)
    num_above = int(np.count_nonzero(is_above))
    return ids[max(num_above - 1, 0) :]


def _contenders(row: Row, count: int) -> Ids:
    """Ids of all logits that reach a bound which `count` or more of them reach, and not many more.

    The row is laid out as a table. The highest of each of so many columns is one of `count` logits
    that reach the lowest of these; only columns whose highest does can hold others.
    """
    width = row.size // COLUMN
    if count > width:
        bound = np.partition(row, -count)[-count]
        return np.flatnonzero(row >= bound) if bound > -np.inf else _allowed(row, count)
    size = COLUMN * width
    table = row[:size].reshape(COLUMN, width)
    tops = table.max(axis=0)
    bound = np.partition(tops, -count)[-count]
    if bound == -np.inf:
        return _allowed(row, count)
    columns = np.flatnonzero(tops >= bound)
    lines, places = np.nonzero(table[:, columns] >= bound)
    rest = np.flatnonzero(row[size:] >= bound)
    return np.concatenate((lines * width + columns[places], size + rest))


def _allowed(row: Row, count: int) -> Ids:
    """Ids that are not ruled out, or `count` where they are fewer.

    A constraint can rule out nearly the whole vocabulary, and the bound then keeps nothing away.
    """
    allowed = np.flatnonzero(row > -np.inf)
    missing = count - allowed.size
    if missing <= 0:
        return allowed
    # Among the first `count` so many are ruled out at least.
    return np.concatenate((allowed, np.flatnonzero(row[:count] == -np.inf)[:missing]))


def _typical_candidates(row: Row, sampling: Sampling) -> Ids:
    count = min(sampling.top_k, row.size)
    ids = highest(row, count) if count else np.arange(row.size)
    ids = ids[most_typical(row[ids], sampling.typical_p)]
    if sampling.top_p < 1:
        ids = ids[np.argsort(-row[ids])]
        return ids[: _num_passing(row[ids], sampling)]
    if sampling.min_p > 0:
        return ids[row[ids] >= _floor(row[ids].max(), sampling)]
    return ids


def _nucleus(row: Row, sampling: Sampling) -> Ids:
    whole = np.exp(row - row.max()).sum()
    for count in GLANCES:
        ids = highest(row, min(count, row.size))
        num_passing = _num_passing(row[ids], sampling, whole)
        if num_passing < count:
            return ids[:num_passing]
    ids = np.argsort(-row)
    return ids[: _num_passing(row[ids], sampling, whole)]


def _num_passing(logits: Row, sampling: Sampling, whole: np.float32 | None = None) -> int:
    """How many of `logits`, in descending order, pass.

    `whole` is the sum that makes weights probabilities where `logits` are only a part.
    """
    num_passing = logits.size
    if sampling.top_p < 1:
        sums = np.exp(logits - logits[0]).cumsum()
        target = np.float32(sampling.top_p) * (sums[-1] if whole is None else whole)
        num_passing = min(int(sums.searchsorted(target)) + 1, num_passing)
    if sampling.min_p > 0:
        passing = logits >= _floor(logits[0], sampling)
        num_passing = min(num_passing, int(np.count_nonzero(passing)))
    return num_passing


def _floor(highest: np.float32, sampling: Sampling) -> np.float32:
    return np.float32(highest + np.float32(math.log(sampling.min_p)))


# ---- mirostat

_NUM_RANKED = 100
"""How many of the highest tell how steeply the probabilities fall; llama.cpp's choice."""


class PlainMirostat:
    """The draws of one sequence."""

    def __init__(self, sampling: Sampling, rng: Mt19937) -> None:
        self._version = sampling.mirostat
        self._tau = np.float32(sampling.mirostat_tau)
        self._eta = np.float32(sampling.mirostat_eta)
        self._most_surprise = np.float32(2) * self._tau
        self._rng = rng

    def draw(self, row: Row) -> int:
        """A token. The highest logit is finite, and none is NaN; temperature has been applied."""
        top = row.max()
        whole = np.exp(row - top).sum()
        ids = self._steep(row, top, whole) if self._version == 1 else self._bounded(row, top, whole)
        weights = np.exp(row[ids] - top)
        weights = weights[weights > 0]  # the highest come first, so places stay
        probabilities = weights / weights.sum()
        place = self._place(probabilities)
        surprise = -np.log2(probabilities[place])
        if np.isfinite(surprise):
            self._most_surprise = self._most_surprise - self._eta * (surprise - self._tau)
        return int(ids[place])

    def _steep(self, row: Row, top: np.float32, whole: np.float32) -> Ids:
        """The likeliest tokens that fit the surprise, if probabilities fall by a power law."""
        ids = highest(row, min(_NUM_RANKED, row.size))
        probabilities = np.exp(row[ids] - top) / whole
        ranks = np.arange(1, ids.size, dtype=np.float32)
        distances = np.log((ranks + 1) / ranks)
        falls = np.log(probabilities[:-1] / probabilities[1:])
        power = float(distances @ falls / (distances @ distances))
        count = _num_within(power, float(self._most_surprise), row.size)
        return ids[:count] if count <= ids.size else highest(row, count)

    def _bounded(self, row: Row, top: np.float32, whole: np.float32) -> Ids:
        """Those that are no more surprising than allowed, the highest first; one at least."""
        surprises = -np.log2(np.exp(row - top) / whole)
        ids = np.flatnonzero(surprises <= self._most_surprise)
        return ids[np.argsort(-row[ids])] if ids.size else highest(row, 1)

    def _place(self, probabilities: NDArray[np.float32]) -> int:
        """Draw like C++'s `std::discrete_distribution`: nothing where there is no choice."""
        if probabilities.size < 2:
            return 0
        shares = probabilities.astype(np.float64)
        sums = (shares / shares.sum()).cumsum()
        sums[-1] = 1.0
        return int(sums.searchsorted(self._rng.draw()))
