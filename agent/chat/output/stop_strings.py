"""Finds stop strings in streamed text, and holds back as little text as possible.

Invariants: the boundaries of the pieces do not matter. The text returned plus the text held is all
text so far. The text held is the longest suffix that is a prefix of a stop string. The stop string
that is complete first wins. If several end at the same position, the longest wins.
"""

from collections.abc import Sequence


class StopStrings:
    """The matcher of one answer.

    Each character costs one look-up, and while text is held, one comparison per stop string.
    """

    def __init__(self, stops: Sequence[str], *, are_included: bool = False) -> None:
        """If `are_included`, the stop string that is found is part of the text."""
        self._are_included = are_included
        self._longest_first = sorted(stops, key=len, reverse=True)
        self._beginnings = {stop[:end] for stop in stops for end in range(len(stop))}
        self._held = ""
        self.found: str | None = None

    def push(self, text: str, *, may_end: bool = True) -> str:
        """Return the text that can be sent now; always empty once a stop string was `found`.

        Without `may_end`, stop strings that are complete in `text` count as ordinary text.
        """
        if not self._longest_first:
            return text
        free: list[str] = []
        for character in text:
            if self.found is not None:
                break
            free.append(self._take(character, may_end=may_end))
        return "".join(free)

    def flush(self) -> str:
        """Return the text held back: the answer is over, so it is no stop string."""
        held, self._held = self._held, ""
        return held

    def _take(self, character: str, *, may_end: bool) -> str:
        held = self._held + character
        for stop in self._longest_first if may_end else ():
            if held.endswith(stop):
                self.found, self._held = stop, ""
                return held if self._are_included else held[: -len(stop)]
        start = 0
        while held[start:] not in self._beginnings:
            start += 1
        self._held = held[start:]
        return held[:start]
