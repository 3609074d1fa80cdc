"""Finds stop strings in text that arrives in pieces, and holds back no more than it must.

Invariants: where the text is cut changes nothing; what was let go plus what is held is all the
text so far; what is held is the longest end of the text that begins a stop string. The stop string
that is complete first wins, of several that end together the longest.
"""

from collections.abc import Sequence


class StopStrings:
    """The matcher of one answer. A character costs a look-up and, while held, one a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._longest_first = sorted(stops, key=len, reverse=True)
        self._beginnings = {stop[:end] for stop in stops for end in range(len(stop))}
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that may leave now. After a stop string was `found` there is none any more."""
        if not self._longest_first:
            return text
        free: list[str] = []
        for character in text:
            if self.found is not None:
                break
            free.append(self._take(character))
        return "".join(free)

    def flush(self) -> str:
        """What was held back and, the answer being over, is no stop string."""
        held, self._held = self._held, ""
        return held

    def _take(self, character: str) -> str:
        held = self._held + character
        for stop in self._longest_first:
            if held.endswith(stop):
                self.found, self._held = stop, ""
                return held[: -len(stop)]
        start = 0
        while held[start:] not in self._beginnings:
            start += 1
        self._held = held[start:]
        return held[:start]
