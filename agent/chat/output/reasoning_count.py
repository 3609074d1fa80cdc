"""Counts an answer's reasoning tokens, including the markers.

A token counts as its first character does. A token that completes no character counts as the
character that follows. Tokens wait until their text is classified, since a possible marker or stop
string is held back.
"""

from collections import deque
from collections.abc import Iterable


class ReasoningCount:
    """For one answer. Positions are characters from the beginning of its text."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque()
        self._start = 0
        self._num_left = 0
        self._count = 0

    def push(self, ends: Iterable[int]) -> None:
        """Add tokens; `ends` are the positions where their texts end."""
        self._ends.extend(ends)

    def leave(self, num_characters: int, *, is_reasoning: bool) -> None:
        """The next `num_characters` are classified."""
        self._num_left += num_characters
        while self._ends and self._start < self._num_left:
            self._start = self._ends.popleft()
            self._count += is_reasoning

    def total(self, *, is_reasoning: bool) -> int:
        """The count over all tokens, if the text still held back is reasoning or is not."""
        return self._count + (len(self._ends) if is_reasoning else 0)
