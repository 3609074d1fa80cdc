"""Splits the tokens of several inputs into chunks.

Invariants: every token is in exactly one slice, an input's slices are in order, and a chunk holds
at least one token.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive tokens of the input `number`, from `start` on. `is_last`: the input ends with
    them.
    """

    number: int
    start: int
    tokens: tuple[int, ...]
    is_last: bool


class EmbeddingPlan:
    """The plan for `inputs`, which have at least one token each.

    If `splits` is false, an input stays in one chunk.
    """

    def __init__(
        self, inputs: Sequence[tuple[int, ...]], *, max_sequences: int, splits: bool
    ) -> None:
        if not all(inputs):
            raise ValueError("an input without tokens has no vector")
        self._inputs = inputs
        self._max_sequences = max_sequences
        self._splits = splits
        self._number = 0
        self._start = 0

    @property
    def is_done(self) -> bool:
        """Return whether all tokens were returned."""
        return self._number == len(self._inputs)

    def next(self, num_tokens: int) -> tuple[Slice, ...]:
        """Return the next chunk of at most `num_tokens`; an input that may not be split may be
        longer.
        """
        slices: list[Slice] = []
        room = num_tokens
        while not self.is_done and len(slices) < self._max_sequences:
            size = self._size(room, is_first=not slices)
            if not size:
                break
            slices.append(self._take(size))
            room -= size
        return tuple(slices)

    def _size(self, room: int, *, is_first: bool) -> int:
        """Return how many tokens of the current input go into the chunk."""
        rest = len(self._inputs[self._number]) - self._start
        if rest <= room:
            return rest
        if self._splits:
            return max(room, 1 if is_first else 0)
        return rest if is_first else 0

    def _take(self, size: int) -> Slice:
        tokens = self._inputs[self._number]
        start, end = self._start, self._start + size
        is_last = end == len(tokens)
        taken = Slice(self._number, start, tokens[start:end], is_last)
        self._number += is_last
        self._start = 0 if is_last else end
        return taken
