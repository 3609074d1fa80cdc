"""llama.cpp's `dry`: a penalty for tokens that would continue a repetition.

`lengths[i]` is the number of the last tokens that also occur up to position i of the window. With
each token every length either grows by one or becomes 0, so a token costs one pass over the
window. The set-up also takes time in proportion to the window, but in Python, so the decode thread
does not do it.
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
"""The logarithm of the largest single precision number; penalties stay below that number."""


class DryPenalty:
    """The last tokens of one sequence, and the tokens that would repeat them."""

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
        """Record that `token` was generated."""
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
        """Subtract the penalties from the logits of `row`."""
        tokens, lengths = self._longest()
        if not tokens.size:
            return
        exponents = lengths - self._allowed
        if self._most_exponent is not None:
            exponents = np.minimum(exponents, self._most_exponent)
        row[tokens] -= (self._multiplier * self._base**exponents).astype(np.float32)

    def _longest(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return tokens that would continue a long enough repetition, with its maximum length."""
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
    """The end of the last breaker in a window, while tokens are added to the window's end.

    The last position that begins a whole breaker counts, with the longest breaker there. A
    position is decided once as many tokens follow it as the longest breaker has.
    """

    def __init__(self, breakers: Breakers, window: Sequence[int]) -> None:
        self._tails = {token: _by_length(tails) for token, tails in breakers.items()}
        self._reach = max((len(tail) for tails in breakers.values() for tail in tails), default=0)
        self._count = len(window)
        self._recent = list(window[-self._reach - 1 :])  # what may still become a breaker
        # By number of the token since the beginning: where it begins, and where it ends.
        self._decided = self._find(window, 0, len(window) - len(self._recent))

    def accept(self, token: int) -> None:
        """Add `token`."""
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
        """Return the number of tokens after the last breaker among the last `size` tokens.

        Without a breaker, return `size`.
        """
        if not self._tails:
            return size
        first = self._count - len(self._recent)
        found = self._find(self._recent, first, len(self._recent)) or self._decided
        if found is None or found[0] < self._count - size:
            return size
        return self._count - found[1]

    def _find(self, tokens: Sequence[int], first: int, most: int) -> tuple[int, int] | None:
        """Return the last breaker that begins among the first `most` of `tokens`.

        `first` is the number of `tokens[0]` in the sequence.
        """
        for place in range(most - 1, -1, -1):
            for length, tails in self._tails.get(tokens[place], ()):
                if tuple(tokens[place + 1 : place + 1 + length]) in tails:
                    return first + place, first + place + 1 + length
        return None


def _by_length(tails: Sequence[tuple[int, ...]]) -> list[tuple[int, frozenset[tuple[int, ...]]]]:
    """Group tails by length, the longest first; all tails of one length are looked up at once."""
    lengths = sorted({len(tail) for tail in tails}, reverse=True)
    return [(each, frozenset(tail for tail in tails if len(tail) == each)) for each in lengths]


def repeats(tokens: Sequence[int]) -> list[int]:
    """Return, for each token except the last, how many of the last tokens also occur up to it.

    This takes one pass from the end (Z-algorithm): a comparison also counts for later positions.
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
"""Maximum texts remembered."""
MAX_TAIL = 20
"""Maximum tokens after the first that are compared, as in llama.cpp."""

_GAP = "\u0100"
"""Separates tokens, whose bytes are characters below it."""


class BreakerFinder:
    """Finds sequence breakers in `vocab`: the tokens whose texts contain a breaker's text.

    A text may be within one token, or begin in one token and continue in the next. Searching a
    large vocabulary takes a moment, so results are cached, and nothing is done before the first
    search. Thread-safe: at worst two threads search for the same text.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._find_one = lru_cache(MAX_CACHED)(self._look_up)

    def find(self, texts: Sequence[str]) -> Breakers:
        """Return, per first token, all continuations that complete one of `texts`."""
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
        """The bytes of all tokens as one text, and the position where each begins."""
        spelled = [
            self._vocab.name(token).decode("latin-1") + _GAP for token in range(self._vocab.size)
        ]
        return "".join(spelled), list(accumulate(map(len, spelled), initial=0))
