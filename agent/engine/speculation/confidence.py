"""How often a draft model is right, by how likely it finds its own guess; learnt from every draft.

What a model takes for likely says little by itself: it may be overconfident, the sequence may be
drawn at a high temperature, or the model may know nothing of the text. How often guesses of that
kind were what the sequence went on with is seen whether they were computed as drafts or not.
"""

from bisect import bisect_right

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Guesses between two of these probabilities are of one kind."""

FORGETTING = 0.98
"""What an observation still counts when the next one of its kind comes."""

PRIOR = 0.7
"""The part of guesses that is taken to be right before anything is known."""

PROVEN = 16
"""As many observations say whether a draft model is good for anything."""

_WEIGHT = 2.0  # of what is assumed, in observations


class Confidence:
    """Until something was observed, guesses are right as often as the model believes."""

    def __init__(self) -> None:
        middles = [(low + high) / 2 for low, high in zip((0, *EDGES), (*EDGES, 1), strict=True)]
        self._kinds = [_Share(middle) for middle in middles]
        self._first, self._later = _Share(PRIOR), _Share(PRIOR)
        self._num_seen = 0

    @property
    def is_proven(self) -> bool:
        """Whether enough was seen to rely on it."""
        return self._num_seen >= PROVEN

    def observe(self, place: int, believed: float, *, is_right: bool) -> None:
        """The guess in this `place` of a draft, from 0, was right or not; all before it were."""
        self._num_seen += 1
        self._kinds[_kind(believed)].observe(is_right)
        (self._later if place else self._first).observe(is_right)

    def chance(self, believed: float) -> float:
        """That a guess is right which the model finds so likely, from 0 to 1."""
        return self._kinds[_kind(believed)].value

    def expected(self, place: int) -> float:
        """That the guess in this `place` of a draft will be right if all before it are."""
        return (self._later if place else self._first).value

    def hope(self, most: int) -> float:
        """How many guesses of a draft of `most` tokens will be right."""
        chance, total = self.expected(0), 0.0
        for _ in range(most):
            total += chance
            chance *= self.expected(1)
        return total


class _Share:
    """How much of what was observed is right, the latest counting most."""

    __slots__ = ("_all", "_right")

    def __init__(self, assumed: float) -> None:
        self._right, self._all = _WEIGHT * assumed, _WEIGHT

    @property
    def value(self) -> float:
        return self._right / self._all

    def observe(self, is_right: bool) -> None:
        self._right = FORGETTING * self._right + is_right
        self._all = FORGETTING * self._all + 1


def _kind(believed: float) -> int:
    return bisect_right(EDGES, believed)
