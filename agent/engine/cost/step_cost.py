"""The cost of a step, learnt from the steps that were run.

The cost of generating is a line over the number of generated tokens. Prefill has a cost of its own
by its tokens (`PrefillCost`), alone in a step or in addition to generating.

A drafted token costs as much as another generated token or a prompt token. With prompts in the
batch a drafted token costs little, so the price of drafts is learnt from steps without prompts.

A step under another adapter than the previous step takes longer. The cost of that change is learnt
separately, in addition to generating.
"""

from math import inf, sqrt

from .least_squares import LeastSquares, Tie
from .linear_cost import LEAST_SURPRISE, LinearCost

LEAN = 0.5
"""The assumed share of a step's price per token that a drafted token costs.

It applies while all steps had one size; the first drafts show the real share.
"""

LEAST_OWN = 0.1
"""The minimum cost of prompt tokens next to generating ones, relative to their share by number.

The expected cost of generating may come from a time when the machine was slower. Then no cost
would be left for the prompt tokens, and their next chunk would be unbounded.
"""

MOST_CHANGE = 1.15
"""Maximum ratio of a step's time to its prediction if the machine has not become slower."""

FORGETTING = 0.99
STIFFNESS = 0.004
"""The decay of what drafts cost. It is slow, so that expensive drafts are seldom tried again.

Observations soon outweigh `LEAN`, since many steps are observed.
"""


class StepCost:
    """Learnt prices in seconds. Unknown prices are 0."""

    def __init__(
        self, *, most_mixed: int = 0, can_mix: bool = True, can_draft: bool = True
    ) -> None:
        self._generating = LinearCost(doubts=True)
        self._prefill = PrefillCost(most_mixed=most_mixed, can_mix=can_mix)
        self._drafting = LinearCost(forgetting=FORGETTING, stiffness=STIFFNESS, lean=LEAN)
        self._lines = (self._generating, self._drafting) if can_draft else (self._generating,)
        self._changing = LinearCost(doubts=True)
        self.knows_unchanged = False
        """True once a step was observed that only generates, under the previous step's adapter."""

    @property
    def knows_prefill(self) -> bool:
        """Return whether a step with prefill was observed."""
        return self._prefill.is_known

    def observe(
        self,
        *,
        num_generating: int,
        num_prompt_tokens: int,
        depth: int = 0,
        num_drafted: int = 0,
        seconds: float,
        changes_adapter: bool = False,
    ) -> None:
        """Learn from a step that took `seconds`, whose prefill began at position `depth`."""
        num_tokens = num_generating + num_drafted
        if changes_adapter and num_prompt_tokens:
            seconds = max(LEAST_OWN * seconds, seconds - self.change)
        elif changes_adapter and self.knows_unchanged:
            self._observe_change(num_tokens, seconds)
            return
        if num_prompt_tokens:
            own = self._own(num_tokens, num_prompt_tokens, depth, seconds)
            self._prefill.observe(num_prompt_tokens, depth, own, num_generating=num_tokens)
        else:
            for line in self._lines:
                line.observe(num_tokens, seconds)
            self._prefill.bound_base(self.generate(num_tokens))
            self.knows_unchanged = self.knows_unchanged or not changes_adapter

    def _observe_change(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step with another adapter. A large surprise also changes the cost of
        generating.
        """
        generating = self.generate(num_tokens)
        ratio = seconds / (generating + self.change) if self._changing.is_known else 1.0
        if not LEAST_SURPRISE <= ratio <= MOST_CHANGE:
            generating *= ratio
            self._generating.observe(num_tokens, generating)
        self._changing.observe(1, max(0.0, seconds - generating))

    @property
    def change(self) -> float:
        """The seconds that a change of the adapter adds to a step."""
        return self._changing.predict(1) if self._changing.is_known else 0.0

    def _own(self, num_tokens: int, num_prompt_tokens: int, depth: int, seconds: float) -> float:
        """Return the part of a step's `seconds` that its prompt tokens take.

        If the step was much slower or faster than predicted, the machine has become slower or
        faster. Then both parts are scaled. Without the scaling the expected cost of generating
        would stay out of date until the next step that only generates, and the error would be
        charged to the prompts.
        """
        if not num_tokens:
            return seconds
        generating = self.generate(num_tokens)
        prefill = self._prefill.predict(num_prompt_tokens, depth, num_generating=num_tokens)
        change = seconds / (generating + prefill) if generating and prefill else 1.0
        if not LEAST_SURPRISE <= change <= MOST_CHANGE:
            generating *= change
            self._generating.observe(num_tokens, generating)
        share = num_prompt_tokens / (num_prompt_tokens + num_tokens)
        return max(LEAST_OWN * seconds * share, seconds - generating)

    def generate(self, num_tokens: int) -> float:
        """Return the seconds of a step of only `num_tokens` generated or drafted tokens."""
        return self._generating.predict(num_tokens) if num_tokens else 0.0

    def prefill(self, num_tokens: int, depth: int) -> float:
        """Return the seconds to compute `num_tokens` prompt tokens alone, from `depth` on."""
        return self._prefill.predict(num_tokens, depth)

    def draft_price(self, num_generating: int) -> float:
        """Return the share by which one drafted token extends a step of `num_generating`
        sequences.
        """
        return self._drafting.share(num_generating) if self._drafting.is_known else 1.0

    def prefill_within(
        self, seconds: float, num_requested: int, *, depth: int = 0, num_generating: int = 0
    ) -> float:
        """Return how many of `num_requested` prompt tokens to prefill in `seconds`.

        The tokens start at position `depth`. The result may be a little too large; it is infinite
        if no cost is known. With `num_generating`, `seconds` are in addition to the time of
        generating.
        """
        return self._prefill.within(seconds, num_requested, depth, num_generating=num_generating)


# ---- prefill

_PREFILL_FORGETTING = 0.95

MOST_SURPRISE = 1.15
"""Above this multiple of its prediction a step casts doubt on earlier observations.

A step below `LEAST_SURPRISE` does so too.
"""

SLOW_PAST, FAST_PAST = 0.2, 0.5
"""The weights that remain for observations from a slower machine, and from a faster one."""

MOST_GROWTH = 1.5

_ATTENTION = 0.001
"""The assumed price of a pair, as a multiple of the price of a token.

With this price, attention takes as long as everything else at a depth of 1,000. That holds for
small models with fast kernels; other models prefill a little less at first than they could.
"""

_UNTILED = 1.5
"""The assumed surcharge of untiled pairs, as a multiple of the price of tiled pairs."""

OVERDRAFT = 1.25
"""Maximum ratio of a step's time to its budget if the step just fills a tile."""

_TILE = 64
"""Tokens that a step may always prefill, whatever was prefilled before."""

_BASE, _TOKEN, _PAIR, _SURCHARGE = range(4)
_PENALTIES = (0.02, 0.0, 0.0, 0.0)
_FIRST_TIE = Tie(_TOKEN, _PAIR, _ATTENTION, 0.5)
_TIES = (Tie(_PAIR, _SURCHARGE, _UNTILED, 0.003),)


class PrefillCost:
    """The cost of prefill, in seconds. Steps of up to `most_mixed` tokens are not tiled.

    A step with prefill has a base (reading the weights) and a price for each token. A third price
    is for each pair of a token and an earlier token to which it attends. So the cost of a chunk
    deep in a long prompt is known from earlier chunks, before the first chunk at that depth. Next
    to generating sequences there is no base, since generating pays for it.

    From a certain number of tokens on attention is computed in tiles, which is cheaper (see
    `scheduling.prefill`). So pairs have a surcharge in steps of fewer tokens. All other prices are
    learnt from both kinds of steps. Untiled attention never counts as the cheaper kind.

    Prices change slowly. A step that took much longer than predicted usually means that the
    machine was busy with something else, so the step counts as `MOST_SURPRISE` times the
    prediction. If the next step is as slow, the machine has become slower. A step that took far
    less shows that the machine has become faster. While sequences stream, a step prefills at most
    `MOST_GROWTH` times the largest earlier prefill.

    Unless a step `can_mix`, prompts and generating sequences take turns.
    """

    def __init__(self, *, most_mixed: int, can_mix: bool = True) -> None:
        self._can_mix = can_mix
        self.is_known = False
        self._most_mixed = most_mixed
        self._most_prefilled = 0
        self._was_surprised = False
        self._fit = LeastSquares(_PENALTIES, forgetting=_PREFILL_FORGETTING, ties=_TIES)

    def observe(
        self, num_tokens: int, depth: int, seconds: float, *, num_generating: int = 0
    ) -> None:
        """Learn that `num_tokens` of prompts, from position `depth` on, took `seconds`.

        With `num_generating`, `seconds` are in addition to the time of generating.
        """
        self.is_known = True
        self._most_prefilled = max(self._most_prefilled, num_tokens)
        if seconds <= 0:
            return
        features = self._features(num_tokens, depth, num_generating)
        predicted = self._price(features)
        if predicted:
            seconds = self._believed(seconds, predicted)
        self._fit.observe(features, seconds, usual=predicted or seconds)
        if not predicted:
            self._fit.suppose(_FIRST_TIE)

    def bound_base(self, seconds: float) -> None:
        """Limit the base to `seconds`, the time of a step without prompts."""
        self._fit.bound_first(seconds)

    def predict(self, num_tokens: int, depth: int, *, num_generating: int = 0) -> float:
        """Return the seconds that `num_tokens` from position `depth` on add to generating."""
        return self._price(self._features(num_tokens, depth, num_generating))

    def within(
        self, seconds: float, num_requested: int, depth: int, *, num_generating: int = 0
    ) -> float:
        """Return how many of `num_requested` tokens to prefill in about `seconds`.

        The tokens start at position `depth`. The result may exceed `num_requested`; it is infinite
        if no cost is known.
        """
        if not self.is_known:
            return inf
        fitting = self._fitting(seconds, num_requested, depth, num_generating)
        if not num_generating:
            return fitting
        return min(fitting, max(MOST_GROWTH * self._most_prefilled, _TILE))

    def _believed(self, seconds: float, predicted: float) -> float:
        """Return `seconds`, or less if the machine was probably busy with something else."""
        was_surprised = self._was_surprised
        self._was_surprised = seconds > MOST_SURPRISE * predicted
        if seconds < LEAST_SURPRISE * predicted:
            self._fit.doubt(SLOW_PAST)
        elif was_surprised and self._was_surprised:
            self._fit.doubt(FAST_PAST)
        elif self._was_surprised:
            return MOST_SURPRISE * predicted
        return seconds

    def _fitting(
        self, seconds: float, num_requested: int, depth: int, num_generating: int
    ) -> float:
        enough = self._most_mixed + 1
        is_alone = not (num_generating and self._can_mix)
        little = self._most_within(seconds, depth, is_tiled=False, is_alone=is_alone)
        if num_requested < enough - num_generating:
            return little
        fitting = self._most_within(seconds, depth, is_tiled=True, is_alone=True)
        if fitting >= enough:
            return fitting
        if self.predict(enough, depth) <= OVERDRAFT * seconds:
            return enough
        return min(little, self._most_mixed)

    def _most_within(self, seconds: float, depth: int, *, is_tiled: bool, is_alone: bool) -> float:
        """Return the maximum tokens within `seconds`, by solving a quadratic equation."""
        base, token, pair, surcharge = self._fit.prices
        seconds -= base if is_alone else 0.0
        if seconds <= 0:
            return 0.0
        pair += 0.0 if is_tiled else surcharge
        linear = token + pair * depth
        if not linear and not pair:
            return inf
        return 2 * seconds / (linear + sqrt(linear * linear + 2 * pair * seconds))

    def _price(self, features: tuple[float, ...]) -> float:
        return sum(map(float.__mul__, self._fit.prices, features))

    def _features(self, num_tokens: int, depth: int, num_generating: int) -> tuple[float, ...]:
        pairs = num_tokens * (depth + num_tokens / 2)
        is_tiled = num_tokens + num_generating > self._most_mixed
        return float(not num_generating), float(num_tokens), pairs, 0.0 if is_tiled else pairs
