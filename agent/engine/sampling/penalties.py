"""llama.cpp's `penalties`: for repetition, presence and frequency among the last tokens."""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from .sampling import Sampling
from .selection import Row


class Penalties:
    """The last tokens of one sequence, including the prompt's.

    Counts are in arrays, so that a step costs a few passes over them.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._size = sampling.repeat_last_n
        self._repeat = np.float32(sampling.repeat_penalty)
        self._frequency = np.float32(sampling.frequency_penalty)
        self._presence = np.float32(sampling.presence_penalty)
        self._last = deque(prompt[-self._size :])
        counted = Counter(self._last)
        self._places = {token: place for place, token in enumerate(counted)}
        self._tokens = np.array([*counted.keys(), 0], np.intp)  # there is always room for one more
        self._counts = np.array([*counted.values(), 0], np.float32)

    def accept(self, token: int) -> None:
        """Record that `token` was chosen."""
        if len(self._last) == self._size:
            self._forget(self._last.popleft())
        self._last.append(token)
        place = self._places.setdefault(token, len(self._places))
        if place == self._tokens.size:
            self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._tokens[place] = token
        self._counts[place] += 1

    def apply(self, row: Row) -> None:
        """Change the logits of earlier tokens."""
        size = len(self._places)
        tokens, counts = self._tokens[:size], self._counts[:size]
        logits = row[tokens]
        logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
        row[tokens] = logits - (counts * self._frequency + self._presence)

    def _forget(self, token: int) -> None:
        """Decrement the count of `token`. The last entry moves to a freed position."""
        place = self._places[token]
        self._counts[place] -= 1
        if self._counts[place]:
            return
        del self._places[token]
        last = len(self._places)
        if place != last:
            moved = int(self._tokens[last])
            self._places[moved] = place
            self._tokens[place], self._counts[place] = moved, self._counts[last]
        self._counts[last] = 0
