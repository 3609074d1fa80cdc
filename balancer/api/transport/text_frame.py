"""The bytes around a token's text, for answers whose tokens differ only in their text."""

from collections.abc import Callable
from typing import NamedTuple

from ....shared.inference import TokenKind


class TextFrame(NamedTuple):
    """The bytes before and after the JSON of a text of `kind`.

    The user of a frame calls `keep` with each text, and asks for a new frame after any other event.
    """

    kind: TokenKind
    start: bytes
    end: bytes
    keep: Callable[[str], object] | None = None


FrameOf = Callable[[TokenKind], TextFrame | None]
"""Returns the bytes around the text of the next tokens of a kind, from the last rendered token.

Returns `None` if the tokens differ in more than their text.
"""


def no_frame(_kind: TokenKind) -> None:
    """Return `None`, because the tokens of this answer differ in more than their text."""
