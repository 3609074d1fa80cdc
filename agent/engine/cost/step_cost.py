"""The cost of a step, learnt from the steps that were run.

Generating has a line, by its tokens. Prefill has a cost of its own, by its tokens, in steps of its
own or beyond what generating takes (`PrefillCost`).

A drafted token costs what another generating sequence's would, or another prompt token. Beside a
prompt it is computed for what the whole batch costs, so the price of drafts is that without.

A step under another adapter than the step before takes longer. What that change costs is learnt by
itself, beyond what generating takes.
"""

from math import inf, sqrt

from .least_squares import LeastSquares, Tie
from .linear_cost import LEAST_SURPRISE, LinearCost

LEAN = 0.5
"""The part of a step's price that a drafted token is thought to have for each in the step, as long
as steps were all of one size. What it really is shows with the first drafts."""

LEAST_OWN = 0.1
"""The least that prompt tokens are taken to cost beside generating ones, as a part of their share
by number. What generating is thought to take may come from a time when the machine was slower: then
nothing would be left for prompts, and their next chunk had no bound."""

MOST_CHANGE = 1.15
"""How much longer than predicted a step takes if the machine has not become slower."""

FORGETTING = 0.99
STIFFNESS = 0.004
"""What drafts cost is forgotten slowly, so that it is seldom tried again where they are too dear.
What was seen soon outweighs `LEAN`, for there are many steps to be seen."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self, *, most_mixed: int = 0, can_mix: bool = True) -> None:
        self._generating = LinearCost(doubts=True)
        self._prefill = PrefillCost(most_mixed=most_mixed, can_mix=can_mix)
        self._drafting = LinearCost(forgetting=FORGETTING, stiffness=STIFFNESS, lean=LEAN)
        self._changing = LinearCost(doubts=True)
        self.knows_unchanged = False
        """Whether a step was seen that only generates, under the adapter of the step before."""

    @property
    def knows_prefill(self) -> bool:
        """Whether a step with prefill was seen."""
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
            for line in (self._generating, self._drafting):
                line.observe(num_tokens, seconds)
            self._prefill.bound_base(self.generate(num_tokens))
            self.knows_unchanged = self.knows_unchanged or not changes_adapter

    def _observe_change(self, num_tokens: int, seconds: float) -> None:
        """A step that took much longer or less than predicted also tells of the machine."""
        generating = self.generate(num_tokens)
        ratio = seconds / (generating + self.change) if self._changing.is_known else 1.0
        if not LEAST_SURPRISE <= ratio <= MOST_CHANGE:
            generating *= ratio
            self._generating.observe(num_tokens, generating)
        self._changing.observe(1, max(0.0, seconds - generating))

    @property
    def change(self) -> float:
        """Seconds that a change of the adapter adds to a step."""
        return self._changing.predict(1) if self._changing.is_known else 0.0

    def _own(self, num_tokens: int, num_prompt_tokens: int, depth: int, seconds: float) -> float:
        """The part of a step's `seconds` that its prompt tokens take.

        If the step was much slower or faster than predicted, so is the machine: then both parts
        cost more or less. Otherwise what generating is thought to take would be out of date, since
        no step that only generates may come for long, and prompts would have to make up for it.
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
        """Seconds of a step of nothing but so many generating sequences, or drafted tokens."""
        return self._generating.predict(num_tokens) if num_tokens else 0.0

    def prefill(self, num_tokens: int, depth: int) -> float:
        """Seconds to compute so many prompt tokens from `depth` on, beside nothing else."""
        return self._prefill.predict(num_tokens, depth)

    def draft_price(self, num_generating: int) -> float:
        """What a drafted token adds to a step of so many generating sequences, as a part of it."""
        return self._drafting.share(num_generating) if self._drafting.is_known else 1.0

    def prefill_within(
        self, seconds: float, num_requested: int, *, depth: int = 0, num_generating: int = 0
    ) -> float:
        """How many of `num_requested` prompt tokens, from `depth` on, to prefill in `seconds`.

        It may be a little more; infinite where nothing is known. Beside `num_generating` the
        seconds are those beyond what generating takes.
        """
        return self._prefill.within(seconds, num_requested, depth, num_generating=num_generating)


# ---- prefill

_PREFILL_FORGETTING = 0.95

MOST_SURPRISE = 1.15
"""Above this part of its prediction, and below `LEAST_SURPRISE`, a step casts doubt on what was
learnt before."""

SLOW_PAST, FAST_PAST = 0.2, 0.5
"""The weights that are left to what was learnt before, if it was learnt on a slower machine or a
faster one."""

MOST_GROWTH = 1.5

_ATTENTION = 0.001
"""What a pair is thought to cost at first, in prices of a token: at a depth of 1,000 attention
takes as long as the rest. That is so of small models with fast kernels; others prefill a little
less at first than they could."""

_UNTILED = 1.5
"""What pairs that are not in tiles are thought to cost more at first, in prices of those that
are."""

OVERDRAFT = 1.25
"""How much longer than it should a step may take that just fills a tile."""

_TILE = 64
"""Tokens that a step may prefill whatever was prefilled before."""

_BASE, _TOKEN, _PAIR, _SURCHARGE = range(4)
_PENALTIES = (0.02, 0.0, 0.0, 0.0)
_FIRST_TIE = Tie(_TOKEN, _PAIR, _ATTENTION, 0.5)
_TIES = (Tie(_PAIR, _SURCHARGE, _UNTILED, 0.003),)


class PrefillCost:
    """The cost of prefill. Prices in seconds; steps of up to `most_mixed` tokens are not tiled.

    A step with prefill has a base (it reads the weights), a price for each token, and one for each
    pair of a token and one before it that it attends to. So what a chunk costs deep in a long
    prompt is known from chunks further ahead, before the first one is computed there. Beside
    generating sequences there is no base: that is theirs.

    From a certain number of tokens on attention is computed in tiles, which is cheaper (see
    `scheduling.prefill`). So pairs have a surcharge in steps of fewer tokens, and all the rest is
    learnt from both. Untiled attention is never taken for the cheaper one.

    Nothing is believed at once. A step that took much longer than predicted usually means that the
    machine was busy with something else: it counts as `MOST_SURPRISE` times the prediction. If the
    next one does too, the machine has become slower. One that took far less shows that it has
    become faster. And beside streams no step prefills more than `MOST_GROWTH` times what one has
    prefilled before.

    Unless a step `can_mix`, prompts are never prefilled beside generating sequences but in turns.
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
        """`num_tokens` of prompts, from position `depth` on, took `seconds`.

        Beside `num_generating` those are the seconds beyond what generating takes.
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
        """A step without prompts takes `seconds`. It reads the weights as well."""
        self._fit.bound_first(seconds)

    def predict(self, num_tokens: int, depth: int, *, num_generating: int = 0) -> float:
        """Seconds for `num_tokens` from position `depth` on, beyond what generating takes."""
        return self._price(self._features(num_tokens, depth, num_generating))

    def within(
        self, seconds: float, num_requested: int, depth: int, *, num_generating: int = 0
    ) -> float:
        """How many of `num_requested` tokens, from `depth` on, to prefill in about `seconds`.

        It may be more than `num_requested`; infinite where nothing is known.
        """
        if not self.is_known:
            return inf
        fitting = self._fitting(seconds, num_requested, depth, num_generating)
        if not num_generating:
            return fitting
        return min(fitting, max(MOST_GROWTH * self._most_prefilled, _TILE))

    def _believed(self, seconds: float, predicted: float) -> float:
        """`seconds`, less where the machine was probably busy with something else."""
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
        """The most tokens that take no longer: a quadratic equation."""
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
