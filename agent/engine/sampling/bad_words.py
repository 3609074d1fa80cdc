"""vLLM's `bad_words`: runs of tokens that an answer must not have."""

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from .selection import Row


class BadWords:
    """The last tokens of one answer; what would complete one of `words` is ruled out."""

    def __init__(self, words: Sequence[Sequence[int]], said: Sequence[int]) -> None:
        """Words have one token at least. `said` are the answer's tokens so far."""
        size = max((len(word) for word in words), default=1) - 1
        self._last = deque(said[max(len(said) - size, 0) :], maxlen=size)
        self._alone = np.array([word[0] for word in words if len(word) == 1], np.intp)
        self._longer: defaultdict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        """By the token before the last: all tokens but the last, and that one."""
        for *head, end in words:
            if head:
                self._longer[head[-1]].append((tuple(head), end))

    def apply(self, row: Row) -> None:
        """Rule out what would complete a word."""
        row[self._alone] = -np.inf
        if not self._last:
            return
        last = tuple(self._last)
        for head, end in self._longer.get(last[-1], ()):
            if last[-len(head) :] == head:
                row[end] = -np.inf

    def accept(self, token: int) -> None:
        """`token` was chosen."""
        self._last.append(token)
