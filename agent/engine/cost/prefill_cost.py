"""The cost of prefill by depth, learnt from the steps that were run.

There are two lines at each depth, by the tokens of a step: from a certain number on each costs less
(see `step_mode`), so it pays to read that many even where it takes a little longer.
"""

from .linear_cost import LinearCost

_SHALLOW = 8
"""Depths of less than 2 to the power of this have one line."""


class CostByDepth:
    """Learns from `observe`."""

    def __init__(self) -> None:
        self._lines: dict[int, LinearCost] = {}

    def observe(self, depth: int, count: int, seconds: float) -> None:
        """`count`, from position `depth` on, took `seconds`."""
        self._lines.setdefault(_octave(depth), LinearCost()).observe(count, seconds)

    def at(self, depth: int) -> LinearCost:
        """The line there; where nothing was seen yet the next shallower one, or the nearest."""
        octave = _octave(depth)
        if not self._lines:
            return LinearCost()
        return self._lines[max((o for o in self._lines if o <= octave), default=min(self._lines))]


def _octave(depth: int) -> int:
    return (depth >> _SHALLOW).bit_length()


OVERDRAFT = 1.25
"""How much longer than it should a step may take that is large enough to be cheap."""

RETRY = 10
"""Steps with few tokens after which one is tried again that is large enough to be cheap."""


class PrefillCost:
    """Prices in seconds; steps of up to `most_mixed` tokens are the dear ones."""

    def __init__(self, *, most_mixed: int) -> None:
        self.is_known = False
        self._most_mixed = most_mixed
        self._little = CostByDepth()
        self._much = CostByDepth()
        self._num_little = 0

    def observe(self, depth: int, num_tokens: int, seconds: float) -> None:
        """`num_tokens` of prompts, from position `depth` on, took `seconds`."""
        self.is_known = True
        if num_tokens > self._most_mixed:
            self._much.observe(depth, num_tokens, seconds)
            self._num_little = 0
        else:
            self._little.observe(depth, num_tokens, seconds)
            self._num_little += 1

    def within(self, seconds: float, num_wanted: int, depth: int) -> float:
        """How many of `num_wanted` tokens, from `depth` on, to read in `seconds` or little more."""
        much, little = self._much.at(depth), self._little.at(depth)
        enough = self._most_mixed + 1
        if not much.is_known or (num_wanted < enough and little.is_known):
            return little.most_within(seconds)
        fitting = much.most_within(seconds)
        if fitting >= enough:
            return fitting
        if much.predict(enough) <= OVERDRAFT * seconds or self._num_little >= RETRY:
            return enough
        return min(little.most_within(seconds) if little.is_known else fitting, self._most_mixed)
