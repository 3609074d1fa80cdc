"""What reading prompts costs at one depth, learnt from the steps that were run.

There are two lines, by the tokens of a step: from a certain number on each costs less (see
`mixing`), so it pays to read that many even where it takes a little longer.
"""

from .line import Line

OVERDRAFT = 1.25
"""How much longer than it should a step may take that is large enough to be cheap."""

RETRY = 10
"""Steps with few tokens after which one is tried again that is large enough to be cheap."""


class ReadingCost:
    """Prices in seconds; steps of up to `most_mixed` tokens are the dear ones."""

    def __init__(self, *, most_mixed: int) -> None:
        self._most_mixed = most_mixed
        self._little = Line()
        self._much = Line()
        self._num_little = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """`num_tokens` of prompts took `seconds`."""
        if num_tokens > self._most_mixed:
            self._much.observe(num_tokens, seconds)
            self._num_little = 0
        else:
            self._little.observe(num_tokens, seconds)
            self._num_little += 1

    def within(self, seconds: float, num_wanted: int) -> float:
        """How many of `num_wanted` tokens to read in `seconds`, or a little more."""
        much, little = self._much, self._little
        enough = self._most_mixed + 1
        if not much.is_known or (num_wanted < enough and little.is_known):
            return little.most_within(seconds)
        fitting = much.most_within(seconds)
        if fitting >= enough or not little.is_known:
            return fitting
        if much.predict(enough) <= OVERDRAFT * seconds or self._num_little >= RETRY:
            return enough
        return min(little.most_within(seconds), self._most_mixed)
