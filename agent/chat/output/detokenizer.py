"""Incremental detokenizer: a character is returned once all of its bytes are there.

The bytes of a character that an answer's end cuts off are left out.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable

_Utf8Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one sequence. `piece` gives a token's bytes, which may be a part of a character.

    Invalid UTF-8 becomes U+FFFD. The cost of a token does not grow with the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """The characters that `tokens` complete; may be empty."""
        return self._decoder.decode(b"".join(map(self._piece, tokens)))
