"""llama.cpp's `dry`: tokens that would go on repeating what was said are penalised.

`lengths[i]` is how many of the last tokens also stand up to position i of the window. With each
token all of them either grow by one or fall to nothing, so a token costs one pass over the window.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .sampling import Breakers, Dry

_LOG_OF_MOST = 88.7228391
"""Of the largest single precision number: what a penalty may not grow beyond."""


class DryPenalty:
    """The last tokens of one sequence, and what would repeat them."""

    def __init__(self, dry: Dry, prompt: Sequence[int]) -> None:
        self._dry = dry
        self._tokens = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)  # one less: the last position is the end itself
        self._multiplier = float(np.float32(dry.multiplier))
        self._base = float(np.float32(dry.base))
        growth = math.log(dry.base) if dry.base > 1.000001 else 0.0
        self._most_exponent = int(_LOG_OF_MOST / growth) if growth else None
        for token in prompt[-dry.penalty_last_n :] if dry.penalty_last_n else ():
            self.accept(token)

    def accept(self, token: int) -> None:
        """`token` was said."""
        size = self._dry.penalty_last_n
        if not size:
            return
        tokens = self._tokens
        self._tokens = np.append(tokens, token)[-size:]
        if tokens.size:
            grown = np.concatenate(([1], self._lengths + 1))
            lengths = np.where(tokens == token, grown, 0)
            self._lengths = lengths[lengths.size + 1 - self._tokens.size :]

    def apply(self, row: NDArray[np.float32]) -> None:
        """Take the penalties off the logits of `row`."""
        dry = self._dry
        for token, length in self._continuations().items():
            if () in dry.breakers.get(token, ()):
                continue
            exponent = length - dry.allowed_length
            if self._most_exponent is not None:
                exponent = min(exponent, self._most_exponent)
            row[token] -= np.float32(self._multiplier * self._base**exponent)

    def _continuations(self) -> dict[int, int]:
        """Tokens that would go on repeating, and how many tokens they would repeat already."""
        allowed, size = self._dry.allowed_length, self._tokens.size
        if size <= allowed:
            return {}
        limit = _unbroken(self._tokens.tolist(), self._dry.breakers)
        if limit < allowed:
            return {}
        within = np.minimum(np.arange(1, size), limit)
        lengths = np.minimum(self._lengths, within)
        longest: dict[int, int] = {}
        for place in np.flatnonzero(lengths >= allowed).tolist():
            token, length = int(self._tokens[place + 1]), int(lengths[place])
            longest[token] = max(length, longest.get(token, 0))
        return longest


def _unbroken(tokens: list[int], breakers: Breakers) -> int:
    """How many of the last `tokens` follow the last breaker among them."""
    if not breakers:
        return len(tokens)
    for place in range(len(tokens) - 1, -1, -1):
        tails = breakers.get(tokens[place])
        if tails is None:
            continue
        after = tokens[place + 1 :]
        fitting = [len(tail) for tail in tails if tuple(after[: len(tail)]) == tail]
        if fitting:
            return len(after) - max(fitting)
    return len(tokens)
