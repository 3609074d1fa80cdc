"""From tokens to text, piece by piece: a character leaves when all of its bytes are there."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable

_Utf8Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """Text of one sequence. `piece` gives a token's bytes, which may be a part of a character.

    Bytes that are no UTF-8 become U+FFFD. The cost of a token does not grow with the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """The characters that `tokens` complete; may be empty."""
        return self._decoder.decode(b"".join(map(self._piece, tokens)))

    def flush(self) -> str:
        """What is left when no token follows: U+FFFD for a character that was never finished."""
        return self._decoder.decode(b"", final=True)
