"""The text of a simulated token: the time at which it was sent.

Every process of one machine has the same monotonic clock, so the client knows how long a token
was on its way. The mark stands once in each token, behind a quote only where a text begins, so
tokens and the events that carry them are counted without parsing.
"""

import re
import time

MARK = b"~"
FIRST_MARK = b'"~'
"""The mark of the first token of an event's text."""

_MODULUS = 10**10
_STAMP = re.compile(rb"~(\d{10})")


def stamp() -> bytes:
    """A token's text, sent now."""
    return b"~%010d" % (time.monotonic_ns() // 1000 % _MODULUS)


def stamps(raw: bytes) -> list[tuple[int, int]]:
    """Where each token of an answer ends, and its stamp."""
    return [(match.end(), int(match[1])) for match in _STAMP.finditer(raw)]


def seconds_since(sent: int, at: float) -> float:
    """How long ago `sent` was `at` this time of the monotonic clock."""
    return (int(at * 1_000_000) - sent) % _MODULUS / 1_000_000
