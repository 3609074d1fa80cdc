"""Incremental detokenizer: returns a character once all of its bytes have arrived.

If an answer ends within a character, the bytes of that character are dropped.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable

_Utf8Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one sequence. `piece` returns a token's bytes, which may be part of a character.

    Invalid UTF-8 becomes U+FFFD. The cost of a token does not grow with the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """Return the characters that `tokens` complete; may be empty."""
        return self._decoder.decode(b"".join(map(self._piece, tokens)))
