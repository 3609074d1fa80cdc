"""Chooses a sequence's next token from its row of logits.

The sampler follows llama.cpp's own chain, in the order of its `common_sampler`: biases, penalties,
DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, `adaptive_p`, and the draw by
seed. A request can give another order (`ordered`), or mirostat: then biases, temperature and
mirostat apply. The draws are llama.cpp's too, so the same seed gives the same tokens. As in
llama-server the penalties' history begins with the prompt, so a token that occurs in the prompt is
penalised in the answer.
"""

from collections import deque
from math import isfinite, isnan
from typing import Protocol

import numpy as np

from ..grammar.constraint import GrammarState, Mask
from ..loaded_model import Vocab
from ..sequence import NewSequence
from .adaptive import AdaptiveProbability
from .bad_words import BadWords
from .dry import DryPenalty
from .filters import Pool
from .log_probs import LogProbs, RawRow
from .mirostat import Mirostat, place_of
from .mt19937 import Mt19937
from .ordered import left_in_order, softmax
from .penalties import Penalties
from .sampling import Sampling
from .selection import FEW, LEAST_DRAW, Ids, Row, tops_of, without_nan
from .together import cut_of
from .weights import Scratch, wide_sums

_LEAST_TEMPERATURE = np.finfo(np.float32).tiny
"""The smallest divisor of logits. Far above it, the best token is always drawn."""


class Sampler:
    """Chooses the tokens of one sequence, and remembers them if filters or penalties need them.

    When a draft is checked, rows come one by one, up to the first token that differs: every chosen
    token counts as generated.

    A broken row, or a tiny temperature, also gives a token. NumPy would warn about such a row: the
    caller silences the warnings once for all rows (`np.errstate`). Samplers of one thread share a
    `scratch`.
    """

    def __init__(
        self,
        sequence: NewSequence,
        vocab: Vocab,
        grammar: GrammarState | None = None,
        *,
        scratch: Scratch | None = None,
    ) -> None:
        self._sampling = sequence.sampling
        self._scratch = Scratch() if scratch is None else scratch
        self._grammar = grammar
        biases = _biases(sequence.sampling, vocab)
        self._biased = np.array(list(biases.keys()), np.intp)
        self._biases = np.array(list(biases.values()), np.float32)
        self._allowed = _allowed(sequence.sampling, vocab)
        self._num_chosen = len(sequence.said)
        self._forced = deque(sequence.forced)
        self._early = _ends(sequence.sampling, vocab)
        histories = _histories(sequence)
        self._order = sequence.sampling.order
        in_order = sequence.sampling.samplers
        self._histories = tuple(histories.values())
        self._before = tuple(each for name, each in histories.items() if name not in in_order)
        """The histories that change a row first; all others follow the request's order."""
        self._in_order = {name: each for name, each in histories.items() if name in in_order}
        self._temperature = max(np.float32(sequence.sampling.temperature), _LEAST_TEMPERATURE)
        self.cut = cut_of(sequence.sampling, self._temperature)
        """The filters, if `draw_together` can apply them between `change` and `take`."""
        self._rng = Mt19937(sequence.sampling.seed)
        self._rng.skip(sequence.sampling.num_draws(len(sequence.said)))
        # XTC has a generator of its own, from the same seed.
        self._xtc_chance = Mt19937(sequence.sampling.seed) if sequence.sampling.has_xtc else None
        has_mirostat = sequence.sampling.mirostat > 0
        self._mirostat = Mirostat(sequence.sampling, self._rng) if has_mirostat else None
        self._adaptive = _adaptive(sequence.sampling)
        self._drawn: tuple[int, np.float32] | None = None
        """The last drawn token with its probability, which `_adaptive` learns if the token is
        chosen.
        """
        self._log_probs: list[LogProbs] = []

    @property
    def failure(self) -> str | None:
        """The reason why the sequence's constraint can no longer be satisfied; `None` if it can
        be.
        """
        return self._grammar.failure if self._grammar else None

    def choose(self, row: Row) -> int:
        """Choose the next token from its logits `row`, which is overwritten."""
        if self._sampling.top_log_probs is None:
            return self._choose(row, None)
        will_change = self._will_change
        num_ranked = 0 if will_change else self._num_ranked
        raw = RawRow(
            row,
            self._sampling.top_log_probs,
            self._scratch,
            will_change=will_change,
            num_ranked=num_ranked,
        )
        token = self._choose(row, None if will_change else raw)
        self._log_probs.append(raw.of(token))
        return token

    def score(self, row: Row, token: int) -> LogProbs:
        """Return the log-probabilities of a prompt's token from its logits `row`, which is not
        changed.
        """
        num_top = self._sampling.top_log_probs or 0
        return RawRow(row, num_top, self._scratch, will_change=False).of(token)

    def take_log_probs(self) -> tuple[LogProbs, ...]:
        """Return the log-probabilities of tokens chosen since the last call, if requested."""
        if not self._log_probs:
            return ()
        log_probs = tuple(self._log_probs)
        self._log_probs.clear()
        return log_probs

    @property
    def _will_change(self) -> bool:
        """Return whether `change` will change the row, or a token is forced."""
        is_early = self._num_chosen < self._sampling.min_tokens
        has_mask = self._allowed is not None or self._grammar is not None
        is_ordered = bool(self._order)
        has_history = is_ordered or bool(self._histories)
        return bool(self._biased.size or has_mask or is_early or has_history or self._forced)

    @property
    def _num_ranked(self) -> int:
        """The number of highest tokens with which the filters begin; 0 if they begin with all."""
        sampling = self._sampling
        begins = sampling.mirostat == 0 and sampling.top_n_sigma <= 0
        return sampling.top_k if begins and sampling.top_k <= FEW else 0

    def change(self, row: Row) -> None:
        """Change the logits of `row` before the filters: biases, penalties, masks."""
        if self._biased.size:
            row[self._biased] += self._biases
        if self._allowed is not None:
            self._allowed.restrict(row)
        if self._num_chosen < self._sampling.min_tokens:
            row[self._early] = -np.inf
        for history in self._before:
            history.apply(row)
        if self._grammar is not None:
            self._grammar.restrict(row)

    def draw(self) -> float:
        """Return the next uniform draw in [0, 1)."""
        return self._rng.draw()

    def pick(self, row: Row) -> int:
        """Return the token that the filters and the draw give for a changed `row`."""
        return self._pick(row, None)

    def take(self, token: int) -> int:
        """Record the picked `token`. Returns the chosen token, which may be a forced one."""
        if self._forced:
            token = self._forced.popleft()
        self._num_chosen += 1
        if self._grammar is not None:
            self._grammar.accept(token)
        for history in self._histories:
            history.accept(token)
        if self._adaptive is not None and self._drawn is not None and self._drawn[0] == token:
            self._adaptive.accept(self._drawn[1])
        return token

    def _choose(self, row: Row, raw: RawRow | None) -> int:
        self.change(row)
        return self.take(self._pick(row, raw))

    def _pick(self, row: Row, raw: RawRow | None) -> int:
        sampling = self._sampling
        is_greedy = sampling.temperature <= 0
        if self._order and self._mirostat is None:
            return self._pick_in_order(row)
        if is_greedy and not sampling.may_pass_over_the_best:
            return self._best(row)
        tops = tops_of(row) if raw is None else raw.tops
        if isnan(top := tops.max()):
            row = without_nan(row)
            tops = tops_of(row)
            top = tops.max()
        if not isfinite(top):
            return self._best(row)
        if self._mirostat is not None:
            return self._mirostat.draw(row, tops, self._temperature, self._scratch)
        if raw is None:
            pool = Pool(row, tops, self._scratch)
        else:
            pool = Pool(row, tops, self._scratch, raw.likely, raw.ranked)
        self._filter(pool)
        return pool.best() if is_greedy else pool.draw(self._temperature, self._rng.draw())

    def _pick_in_order(self, row: Row) -> int:
        if isnan(row.max()):
            row = without_nan(row)
        if not isfinite(row.max()):
            return self._best(row)
        ids, logits = left_in_order(row, self._sampling, self._in_order, self._draw_for_xtc)
        if self._sampling.temperature <= 0:
            return int(ids[logits.argmax()])
        if self._adaptive is not None:
            probabilities = softmax(logits)
            place = place_of(softmax(self._adaptive.weighed(probabilities)), self._rng)
            self._drawn = int(ids[place]), probabilities[place]
            return int(ids[place])
        sums = wide_sums(np.exp(logits - logits.max()))
        return int(ids[sums.searchsorted(max(self._rng.draw() * sums[-1], LEAST_DRAW))])

    def _draw_for_xtc(self) -> float:
        return 1.0 if self._xtc_chance is None else self._xtc_chance.draw_single()

    def _best(self, row: Row) -> int:
        best = int(row.argmax())  # NaN counts as the highest
        if isnan(row[best]):
            row = without_nan(row)
            best = int(row.argmax())
        return best if row[best] > -np.inf else self._any_token(row.size)

    def _filter(self, pool: Pool) -> None:
        sampling = self._sampling
        if sampling.top_n_sigma > 0:
            pool.keep_within_deviations(sampling.top_n_sigma)
        if sampling.top_k > 0:
            pool.keep_highest(sampling.top_k)
        if sampling.typical_p < 1:
            pool.keep_typical(sampling.typical_p)
        if sampling.top_p < 1:
            pool.keep_nucleus(sampling.top_p, sampling.min_p)
        elif sampling.min_p > 0:
            pool.keep_likely(sampling.min_p)
        if self._xtc_chance is None or not pool.has_choice:
            return
        if self._xtc_chance.draw_single() <= sampling.xtc_probability:
            pool.drop_top_choices(sampling.xtc_threshold)

    def _any_token(self, size: int) -> int:
        """Return the first token that is not ruled out, if the model rules out all others."""
        if self._grammar is not None:
            return self._grammar.first
        if self._allowed is not None:
            return self._allowed.first
        ruled_out = {*self._biased[np.isneginf(self._biases)].tolist()}
        if self._num_chosen < self._sampling.min_tokens:
            ruled_out.update(self._early.tolist())
        return next((token for token in range(size) if token not in ruled_out), 0)


def _adaptive(sampling: Sampling) -> AdaptiveProbability | None:
    if not sampling.has_adaptive:
        return None
    return AdaptiveProbability(sampling.adaptive_target, sampling.adaptive_decay)


class _History(Protocol):
    """A sampler that depends on the tokens so far: of the prompt and of the answer."""

    def apply(self, row: Row) -> None:
        """Change the logits of earlier tokens."""

    def accept(self, token: int) -> None:
        """Record that `token` was chosen."""


def _histories(sequence: NewSequence) -> dict[str, _History]:
    """Return the sequence's histories by the names of their samplers."""
    sampling = sequence.sampling
    histories: dict[str, _History] = {}
    tokens = sequence.prompt.tokens + sequence.said
    if sampling.mirostat == 0 and sampling.has_penalties:
        histories["penalties"] = Penalties(sampling, tokens)
    if sampling.mirostat == 0 and sampling.dry is not None:
        histories["dry"] = DryPenalty(sampling.dry, tokens)
    if sampling.bad_words:
        histories["bad_words"] = BadWords(sampling.bad_words, sequence.said)
    return histories


def _biases(sampling: Sampling, vocab: Vocab) -> dict[int, float]:
    """Return biases by token; ids outside the vocabulary are ignored."""
    biases = {token: bias for token, bias in sampling.logit_bias if 0 <= token < vocab.size}
    never = vocab.suppressed_tokens
    if sampling.ignore_eos:
        never = never | vocab.end_tokens
    return biases | dict.fromkeys(never, -np.inf)


def _allowed(sampling: Sampling, vocab: Vocab) -> Mask | None:
    """Return the mask of allowed tokens, if they are limited.

    Ids outside the vocabulary are ignored.
    """
    if sampling.allowed_tokens is None:
        return None
    known = {token for token in sampling.allowed_tokens if 0 <= token < vocab.size}
    return Mask(np.array(sorted(known), np.intp), is_exclusion=False)


def _ends(sampling: Sampling, vocab: Vocab) -> Ids:
    """Return the tokens that must not end an answer before it has `min_tokens` tokens."""
    stops = {token for token in sampling.stop_tokens if 0 <= token < vocab.size}
    return np.array(sorted(stops | vocab.end_tokens), np.intp)
