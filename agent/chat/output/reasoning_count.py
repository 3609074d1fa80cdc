"""How many of an answer's tokens went into reasoning, its markers included.

A token counts where its first character does. One without a character of its own (it began one, or
shows nothing) goes with the character that follows; what follows may be long in coming, since text
that might be a marker or a stop string is held back.
"""

from collections import deque
from collections.abc import Iterable


class ReasoningCount:
    """Of one answer. Positions are characters of its text, from its beginning."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque()
        self._start = 0
        self._num_left = 0
        self._count = 0

    def push(self, ends: Iterable[int]) -> None:
        """Tokens came; their text goes up to `ends`."""
        self._ends.extend(ends)

    def leave(self, num_characters: int, *, is_reasoning: bool) -> None:
        """It turned out what so many more characters are."""
        self._num_left += num_characters
        while self._ends and self._start < self._num_left:
            self._start = self._ends.popleft()
            self._count += is_reasoning

    def total(self, *, is_reasoning: bool) -> int:
        """Of all tokens that came, if what is held back is reasoning or is not."""
        return self._count + (len(self._ends) if is_reasoning else 0)
