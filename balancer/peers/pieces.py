"""An answer in pieces that fit into news: compressed, as ASCII text.

Invariant: `joined(cut(body)) == body` for whatever `cut` takes.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence

from ..store.news.records import MOST_PIECES, MOST_TEXT

MOST_BYTES = 16 * 1024 * 1024
"""Of an answer before it is compressed. What compresses badly may be less."""


class TooLong(Exception):
    """An answer takes more pieces than there may be."""


class Unreadable(Exception):
    """These are not the pieces of an answer."""


def cut(body: bytes) -> list[str]:
    """At least one piece, each of at most `MOST_TEXT` characters. Raises `TooLong`."""
    text = b64encode(zlib.compress(body, level=1)).decode()
    if len(body) > MOST_BYTES or len(text) > MOST_PIECES * MOST_TEXT:
        raise TooLong(f"an answer of {len(body)} bytes is too long")
    return [text[start : start + MOST_TEXT] for start in range(0, len(text), MOST_TEXT)]


def joined(pieces: Sequence[str]) -> bytes:
    """The answer that was cut so. Raises `Unreadable`."""
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(b64decode("".join(pieces), validate=True), MOST_BYTES)
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error
    if not reader.eof:
        raise Unreadable("it does not end")
    return body
