"""Sequence breakers of DRY: the tokens that a breaker's text can consist of.

A text may lie within one token, or begin in one and go on in the next. Looking through a large
vocabulary takes a moment, so what was found is kept, and nothing is done before the first time.
Thread-safe: at worst two threads look for the same.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

from ..loaded_model import Vocab
from .sampling import Breakers

MAX_KEPT = 64
"""Texts that are remembered."""
MAX_TAIL = 20
"""Tokens after the first that are looked at; as in llama.cpp."""

_GAP = "\u0100"
"""Stands between tokens; their bytes are characters below it."""


class BreakerFinder:
    """Finds texts in the tokens of `vocab`."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._find_one = lru_cache(MAX_KEPT)(self._look_up)

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
        wanted = part.decode("latin-1") + (_GAP if at_end else "")
        place = text.find(wanted)
        while place >= 0:
            yield bisect_right(starts, place) - 1
            place = text.find(wanted, place + 1)

    @cached_property
    def _spellings(self) -> tuple[str, list[int]]:
        """All tokens' bytes as one text, and where each begins."""
        spelled = [
            self._vocab.name(token).decode("latin-1") + _GAP for token in range(self._vocab.size)
        ]
        return "".join(spelled), list(accumulate(map(len, spelled), initial=0))
