"""Breaks a streamed text into lines, between words."""


class WordWrap:
    """Wraps text at `width` characters. A word is held back until its end shows whether it fits.

    A word that is longer than a line gets its own line.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._gap = ""
        self._word = ""

    def push(self, text: str) -> str:
        """Add text. Returns the text that can be shown now."""
        return "".join(map(self._take, text))

    def flush(self) -> str:
        """Return the text that was held back, at the end of the text or line."""
        shown = self._place()
        self._gap = ""
        return shown

    def _take(self, character: str) -> str:
        if character == "\n":
            shown = self.flush()
            self._column = 0
            return f"{shown}\n"
        if not character.isspace():
            self._word += character
            return ""
        shown = self._place()
        self._gap += character
        return shown

    def _place(self) -> str:
        if not self._word:
            return ""
        gap, word = self._gap, self._word
        self._gap = self._word = ""
        if self._column > 0 and self._column + len(gap) + len(word) > self._width:
            self._column = len(word)
            return f"\n{word}"
        self._column += len(gap) + len(word)
        return gap + word
