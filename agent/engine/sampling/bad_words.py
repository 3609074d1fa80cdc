"""vLLM's `bad_words`: sequences of tokens that an answer must not contain."""

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from .selection import Row


class BadWords:
    """The last tokens of one answer; tokens that would complete one of `words` are ruled out."""

    def __init__(self, words: Sequence[Sequence[int]], said: Sequence[int]) -> None:
        """Begin after the answer's tokens `said`. Each word has at least one token."""
        size = max((len(word) for word in words), default=1) - 1
        self._last = deque(said[max(len(said) - size, 0) :], maxlen=size)
        self._alone = np.array([word[0] for word in words if len(word) == 1], np.intp)
        self._longer: defaultdict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        """Maps a word's second last token to all tokens before the last, and the last token."""
        for *head, end in words:
            if head:
                self._longer[head[-1]].append((tuple(head), end))

    def apply(self, row: Row) -> None:
        """Rule out tokens that would complete a word."""
        row[self._alone] = -np.inf
        if not self._last:
            return
        last = tuple(self._last)
        for head, end in self._longer.get(last[-1], ()):
            if last[-len(head) :] == head:
                row[end] = -np.inf

    def accept(self, token: int) -> None:
        """Record that `token` was chosen."""
        self._last.append(token)
