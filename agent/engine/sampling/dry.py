"""llama.cpp's `dry`: a penalty for tokens that would continue a repetition.

`lengths[i]` is how many of the last tokens also stand up to position i of the window. With each
token all of them either grow by one or fall to nothing, so a token costs one pass over the window.
Setting up takes time in proportion to the window, too, but in Python: not on the decode thread.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..loaded_model import Vocab
from .sampling import Breakers, Dry

_LOG_OF_MOST = 88.7228391
"""The logarithm of the largest single precision number, beyond which no penalty may grow."""


class DryPenalty:
    """The last tokens of one sequence, and what would repeat them."""

    def __init__(self, dry: Dry, prompt: Sequence[int]) -> None:
        self._allowed = dry.allowed_length
        self._size = dry.penalty_last_n
        self._multiplier = float(np.float32(dry.multiplier))
        self._base = float(np.float32(dry.base))
        growth = math.log(dry.base) if dry.base > 1.000001 else 0.0
        self._most_exponent = int(_LOG_OF_MOST / growth) if growth else None
        window = list(prompt[-self._size :]) if self._size else []
        self._breaks = LastBreak(dry.breakers, window)
        self._never = np.array([token for token, tails in dry.breakers.items() if () in tails], int)
        self._tokens = np.array(window, np.int32)
        # One less: the last position is the end itself.
        self._lengths = np.array(repeats(window), np.int32)

    def accept(self, token: int) -> None:
        """`token` was said."""
        if not self._size:
            return
        tokens = self._tokens
        self._tokens = np.append(tokens, np.int32(token))[-self._size :]
        self._breaks.accept(token)
        if tokens.size:
            grown = np.concatenate((np.ones(1, np.int32), self._lengths + np.int32(1)))
            lengths = np.where(tokens == token, grown, np.int32(0))
            self._lengths = lengths[lengths.size + 1 - self._tokens.size :]

    def apply(self, row: NDArray[np.float32]) -> None:
        """Take the penalties off the logits of `row`."""
        tokens, lengths = self._longest()
        if not tokens.size:
            return
        exponents = lengths - self._allowed
        if self._most_exponent is not None:
            exponents = np.minimum(exponents, self._most_exponent)
        row[tokens] -= (self._multiplier * self._base**exponents).astype(np.float32)

    def _longest(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens that would go on repeating enough tokens, and how many at most."""
        size = self._tokens.size
        limit = self._breaks.num_after(size)
        if size <= self._allowed or limit < self._allowed:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        lengths = np.minimum(self._lengths, np.minimum(np.arange(1, size, dtype=np.int32), limit))
        places = (lengths >= self._allowed).nonzero()[0]
        if not places.size:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        tokens, numbers = np.unique(self._tokens[places + 1], return_inverse=True)
        longest = np.zeros(tokens.size, np.int32)
        np.maximum.at(longest, numbers, lengths[places])
        if self._never.size:
            is_penalised = ~np.isin(tokens, self._never)
            tokens, longest = tokens[is_penalised], longest[is_penalised]
        return tokens, longest


class LastBreak:
    """Where the last breaker of a window ends, as tokens are added to the window's end.

    The last place that begins a whole breaker decides, and the longest one that begins there. A
    place is decided once so many tokens follow it as the longest breaker has.
    """

    def __init__(self, breakers: Breakers, window: Sequence[int]) -> None:
        self._tails = {token: _by_length(tails) for token, tails in breakers.items()}
        self._reach = max((len(tail) for tails in breakers.values() for tail in tails), default=0)
        self._count = len(window)
        self._recent = list(window[-self._reach - 1 :])  # what may still become a breaker
        # By number of the token since the beginning: where it begins, and where it ends.
        self._decided = self._find(window, 0, len(window) - len(self._recent))

    def accept(self, token: int) -> None:
        """`token` was added."""
        if not self._tails:
            self._count += 1
            return
        first = self._count - len(self._recent)
        if len(self._recent) > self._reach:
            self._decided = self._find(self._recent, first, 1) or self._decided
            del self._recent[0]
        self._recent.append(token)
        self._count += 1

    def num_after(self, size: int) -> int:
        """How many of the last `size` tokens follow the last breaker among them; all, if none."""
        if not self._tails:
            return size
        first = self._count - len(self._recent)
        found = self._find(self._recent, first, len(self._recent)) or self._decided
        if found is None or found[0] < self._count - size:
            return size
        return self._count - found[1]

    def _find(self, tokens: Sequence[int], first: int, most: int) -> tuple[int, int] | None:
        """The last breaker that begins among the first `most` of `tokens`.

        The number of `tokens[0]` is `first`.
        """
        for place in range(most - 1, -1, -1):
            for length, tails in self._tails.get(tokens[place], ()):
                if tuple(tokens[place + 1 : place + 1 + length]) in tails:
                    return first + place, first + place + 1 + length
        return None


def _by_length(tails: Sequence[tuple[int, ...]]) -> list[tuple[int, frozenset[tuple[int, ...]]]]:
    """The longest first, so that many tails take no longer than one of each length."""
    lengths = sorted({len(tail) for tail in tails}, reverse=True)
    return [(each, frozenset(tail for tail in tails if len(tail) == each)) for each in lengths]


def repeats(tokens: Sequence[int]) -> list[int]:
    """For each token but the last, how many of the last tokens also stand up to it.

    It takes one pass from the end (Z-algorithm): a comparison counts for later places, too.
    """
    said = tokens[::-1]
    size = len(said)
    lengths = [0] * size
    left = right = 0
    for place in range(1, size):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < size and said[length] == said[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return lengths[:0:-1]


# ---- sequence breakers

MAX_CACHED = 64
"""Texts that are remembered."""
MAX_TAIL = 20
"""Tokens after the first that are looked at; as in llama.cpp."""

_GAP = "\u0100"
"""Stands between tokens; their bytes are characters below it."""


class BreakerFinder:
    """Finds sequence breakers in `vocab`: the tokens that a breaker's text can consist of.

    A text may lie within one token, or begin in one and go on in the next. Looking through a large
    vocabulary takes a moment, so what was found is cached, and nothing is done before the first
    time. Thread-safe: at worst two threads look for the same.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._find_one = lru_cache(MAX_CACHED)(self._look_up)

    def find(self, texts: Sequence[str]) -> Breakers:
        """By first token, all that may follow it to make one of `texts` whole."""
        tails: defaultdict[int, dict[tuple[int, ...], None]] = defaultdict(dict)
        for text in texts:
            for token, tail in self._find_one(text):
                tails[token][tail] = None
        return {token: tuple(each) for token, each in tails.items()}

    def _look_up(self, text: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
        whole = text.encode()
        within = dict.fromkeys(self._tokens_with(whole))
        found: list[tuple[int, tuple[int, ...]]] = [(token, ()) for token in within]
        for length in range(1, len(whole)):
            tail = self._tail(whole[length:])
            if tail is not None:
                ending = self._tokens_with(whole[:length], at_end=True)
                found += [(token, tail) for token in ending if token not in within]
        return tuple(found)

    def _tail(self, rest: bytes) -> tuple[int, ...] | None:
        try:
            text = rest.decode()
        except UnicodeDecodeError:  # within a character: no text of its own
            return None
        return self._vocab.tokenize(text, add_special=False, parse_special=False)[:MAX_TAIL]

    def _tokens_with(self, part: bytes, *, at_end: bool = False) -> Iterator[int]:
        text, starts = self._spellings
        searched = part.decode("latin-1") + (_GAP if at_end else "")
        place = text.find(searched)
        while place >= 0:
            yield bisect_right(starts, place) - 1
            place = text.find(searched, place + 1)

    @cached_property
    def _spellings(self) -> tuple[str, list[int]]:
        """All tokens' bytes as one text, and where each begins."""
        spelled = [
            self._vocab.name(token).decode("latin-1") + _GAP for token in range(self._vocab.size)
        ]
        return "".join(spelled), list(accumulate(map(len, spelled), initial=0))
